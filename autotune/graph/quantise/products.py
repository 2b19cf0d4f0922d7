"""Layers on bytes: sums of products of unsigned data with signed weights, in int32."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autotune.graph.ir import Array, GraphBuilder, Node
from autotune.graph.quantise.formats import Format
from search_space.operators.windows import both_sides, normalise_padding

DEPTH = 4
"""Multiple to which channels are padded: the depth of dot products of bytes."""


def padded_bytes(
    builder: GraphBuilder, value: str, before: Sequence[int], after: Sequence[int], at: Format, name: str = ""
) -> str:
    """Pads bytes with the zero of their format."""
    if not at.zero:
        return builder.add("pad", [value], name, before=before, after=after)
    zero = builder.constant(np.array([at.zero], at.dtype), "constant")
    return builder.add("pad_with", [value, zero], name, before=before, after=after)


def sum_of_products(builder: GraphBuilder, node: Node, data: str, weights: Array, source: Format) -> str:
    """Adds a layer on bytes; its sums include the contribution of the data's zero.

    Args:
        builder: builder of the graph.
        node: layer in floats.
        data: bytes, channels last.
        weights: int8, in the shape of the layer's weights.
        source: format of the data.
    """
    attrs, rank = dict(node.attrs), len(builder.type(data).shape)
    before, after = [0] * rank, [0] * rank
    if source.zero and np.any(attrs.get("padding", 0)):
        sides = both_sides(normalise_padding(rank - 2, attrs["padding"]))
        before[1:-1], after[1:-1] = [b for b, _ in sides], [a for _, a in sides]
        attrs["padding"] = 0
    if node.op != "depthwise_conv2d" and attrs.get("groups", 1) == 1:
        after[-1] = -weights.shape[-2] % DEPTH
        weights = with_zero_channels(weights, after[-1])
    if any(before) or any(after):
        data = padded_bytes(builder, data, before, after, source)
    return builder.add(node.op, [data, builder.constant(weights, node.inputs[1])], **attrs)


def with_zero_channels(weights: Array, more: int) -> Array:
    """Appends `more` input channels of zeros to weights (..., input channels, output channels)."""
    room = [(0, 0)] * weights.ndim
    room[-2] = (0, more)
    return np.pad(weights, room)
