"""Layers that only shift, computed bit-exactly on CPUs by dot products of unsigned bytes and signed weights.

The data q become q + 128, and -128 times the weights' sum is added to the bias. The bias is shifted with the sum:
`(sum >> shift) + bias` is `(sum + (bias << shift)) >> shift`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from autotune.graph.ir import Graph, GraphBuilder, Node, rewrite
from autotune.graph.ops.fixed_point import HIGH, LOW
from autotune.graph.quantise.arithmetic import LARGEST
from autotune.graph.quantise.products import DEPTH, with_zero_channels
from search_space.operators.windows import both_sides

ZERO = 128
"""Offset from int8 to uint8."""
_PLAIN = {"shift_conv2d": "conv2d", "shift_matmul": "matmul"}


def with_dot_products(graph: Graph) -> Graph:
    """Replaces shift layers of constant weights by int32 sums and their requantisation.

    A layer whose sums would exceed int32 with the offset stays unchanged.
    """
    return rewrite(graph, _visit)


def _visit(builder: GraphBuilder, node: Node, inputs: list[str]) -> str | None:
    if node.op not in _PLAIN:
        return None
    data, *constants = inputs
    weight, bias = (builder.array(name) for name in constants)
    if weight is None or bias is None:
        return None
    shift, sums = node.attrs["shift"], weight.reshape(-1, weight.shape[-1]).astype(np.int64)
    total = (bias.astype(np.int64) << shift) - ZERO * sums.sum(0)
    if (255 * np.abs(sums).sum(0) + np.abs(total)).max() > LARGEST:
        return None
    attrs: dict[str, Any] = {}
    before, after = [0] * len(node.type.shape), [0] * len(node.type.shape)
    if node.op == "shift_conv2d":
        attrs["stride"] = node.attrs["stride"]
        sides = both_sides(node.attrs["padding"])
        before[1:-1], after[1:-1] = [b for b, _ in sides], [a for _, a in sides]
    after[-1] = -weight.shape[-2] % DEPTH
    value = builder.add("offset", [data])
    if any(before) or any(after):
        value = builder.add("pad", [value], before=before, after=after, value=ZERO)
    value = builder.add(
        _PLAIN[node.op], [value, builder.constant(with_zero_channels(weight, after[-1]), constants[0])], **attrs
    )
    ends = [builder.constant(total.astype(np.int32)), builder.constant(np.full(1, shift, np.int32))]
    low = 0 if node.attrs["relu"] else LOW
    return builder.add("requantise", [value, *ends], node.name, low=low, high=HIGH, dtype="int8")
