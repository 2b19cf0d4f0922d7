"""Sums of the gradients of a value that several nodes read, as an unrolled recurrence reads its weights and its input.

- Gradients of slices that do not overlap are joined: adding n of them, each with zeros around it, would write n whole
  values.
- Products of matrices whose results are several times as large as their factors are added up by one product of joined
  factors: a[0] b[0] + a[1] b[1] = [a[0] a[1]] [b[0]; b[1]].
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autotune.graph.emitter import LabelledEmitter
from autotune.graph.gradient.sums import expand
from autotune.graph.ir import GraphBuilder, Node

_LEAST_RATIO = 4
"""Least ratio of a product's elements to those of its factors at which it is joined with others.

The factors of all products are in memory until the joined product is computed, which small factors alone are worth.
"""


@dataclass(frozen=True)
class SliceGradient:
    """The gradient of a slice of a value.

    Attributes:
        node: the slice.
        slope: its gradient, which may broadcast to it.
    """

    node: Node
    slope: str

    @property
    def bounds(self) -> list[tuple[int, int]]:
        """First index of each axis, and the one after the last."""
        return [(b, b + n) for b, n in zip(self.node.attrs["begin"], self.node.attrs["size"], strict=True)]

    @property
    def is_dense(self) -> bool:
        """True if the slice leaves out nothing between its first and its last index."""
        return all(step == 1 for step in self.node.attrs["step"])


def join_slices(builder: GraphBuilder, shape: tuple[int, ...], slices: Sequence[SliceGradient]) -> str | None:
    """Adds the gradient of a value by several slices of it, with 0 where none reads it.

    Args:
        builder: builder of the graph.
        shape: shape of the value.
        slices: gradients of slices.

    Returns:
        The gradient; None unless there are several dense slices along one axis that do not overlap.
    """
    cut = {axis for piece in slices for axis, part in enumerate(piece.bounds) if part != (0, shape[axis])}
    if len(slices) < 2 or len(cut) != 1 or not all(piece.is_dense for piece in slices):
        return None
    (axis,) = cut
    emitter = LabelledEmitter(builder, f"{slices[0].node.inputs[0]}_gradient")
    parts: list[str] = []
    end = 0
    for piece in sorted(slices, key=lambda piece: piece.bounds[axis]):
        begin, after = piece.bounds[axis]
        if begin < end:
            return None
        if begin > end:
            parts.append(_add_zeros(emitter, shape, axis, begin - end))
        parts.append(expand(builder, piece.slope, piece.node.type.shape))
        end = after
    if end < shape[axis]:
        parts.append(_add_zeros(emitter, shape, axis, shape[axis] - end))
    return emitter.add("concat", parts, axis=axis)


def _add_zeros(emitter: LabelledEmitter, shape: tuple[int, ...], axis: int, extent: int) -> str:
    """Adds zeros of a shape but for the extent of an axis."""
    rest = tuple(extent if at == axis else n for at, n in enumerate(shape))
    zero = emitter.builder.constant(np.zeros(1, np.float32), "zero")
    return emitter.add("broadcast_to", [zero], shape=rest)


def add_up(builder: GraphBuilder, values: Sequence[str]) -> str:
    """Adds gradients of one value; products are added as they are computed, so that one kernel adds several."""
    values = _join_products(builder, values)
    total = values[0]
    for value in values[1:]:
        node = builder.node(value)
        if node is not None and node.op == "multiply":
            total = builder.add("affine", [*node.inputs, total])
        else:
            total = builder.add("add", [total, value])
    return total


def _join_products(builder: GraphBuilder, values: Sequence[str]) -> list[str]:
    """Replaces products of matrices of one type among gradients by one, where factors are much smaller than results."""
    groups: dict[tuple[object, ...], list[Node]] = {}
    rest = []
    for value in values:
        node = _find_product(builder, value)
        if node is None:
            rest.append(value)
        else:
            groups.setdefault((node.type, *(builder.type(name).dtype for name in node.inputs)), []).append(node)
    for nodes in groups.values():
        rest.append(nodes[0].name if len(nodes) == 1 else _multiply_joined(builder, nodes))
    return rest


def _multiply_joined(builder: GraphBuilder, products: Sequence[Node]) -> str:
    """Adds the sum of products of matrices as one product."""
    emitter = LabelledEmitter(builder, products[0].name)
    left = _join_columns(emitter, [node.inputs[0] for node in products])
    right = emitter.add("concat", [node.inputs[1] for node in products], axis=0)
    return emitter.add("matmul", [left, right])


def _find_product(builder: GraphBuilder, value: str) -> Node | None:
    """Returns the product that a value is, if its result is at least `_LEAST_RATIO` times as large as its factors."""
    node = builder.node(value)
    if node is None or node.op != "matmul":
        return None
    sizes = [math.prod(builder.type(name).shape) for name in node.inputs]
    return node if node.type.size >= _LEAST_RATIO * sum(sizes) else None


def _join_columns(emitter: LabelledEmitter, values: Sequence[str]) -> str:
    """Joins matrices along their columns; transposed ones are joined before they are transposed."""
    sources = [emitter.builder.node(value) for value in values]
    if all(node is not None and node.op == "transpose" and node.attrs["axes"] == (1, 0) for node in sources):
        rows = emitter.add("concat", [node.inputs[0] for node in sources if node is not None], axis=0)
        return emitter.add("transpose", [rows], axes=(1, 0))
    return emitter.add("concat", values, axis=1)
