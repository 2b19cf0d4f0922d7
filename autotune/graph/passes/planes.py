"""Convolutions of volumes rewritten as convolutions of planes, which have more algorithms.

- A window of one pixel in height and width slides along the depth alone: a convolution over depth by pixels.
- A window of one plane is a convolution of each plane.
- Any other window of depth d is a convolution of d planes stacked along the channels. That copies the input d times, so
  it is done only if Winograd's algorithm applies to the result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from autotune.graph.ir import Array, Graph, Node
from autotune.graph.passes.site import Site, per_axis, sweep
from search_space.operators.windows import both_sides, normalise_padding

LEAST_OUTPUTS = 16
"""Minimum number of output channels: stacking writes and reads the input once more, so many products must use it."""


def planes(graph: Graph) -> Graph:
    """Rewrites 3D convolutions as 2D ones if these are at least as fast."""
    return sweep(graph, _flatten)


def _flatten(site: Site, node: Node) -> str | None:
    weight = site.array(node.inputs[1]) if node.op == "conv3d" else None
    if weight is None:
        return None
    (stride, *strides), (dilation, *dilations) = (per_axis(node.attrs[name], 3) for name in ("stride", "dilation"))
    ends, *sides = both_sides(normalise_padding(3, node.attrs["padding"]))
    depth, *window = weight.shape[:3]
    batch, frames, *image, channels = site.type(node.inputs[0]).shape
    data, count = site.new[node.inputs[0]], node.type.shape[1]
    if window == [1, 1] and strides == [1, 1] and sides == [(0, 0)] * 2:
        data = site.reshape(data, (batch, frames, image[0] * image[1], channels))
        attrs = {"stride": (stride, 1), "padding": normalise_padding(2, [ends, (0, 0)]), "dilation": (dilation, 1)}
        return _add_convolution(site, node, data, weight[:, :, 0], attrs)
    if depth > 1 and not _pays(node, weight, strides, dilations):
        return None
    if depth > 1 and any(ends):
        before, after = ((0, end, 0, 0, 0) for end in ends)
        data = site.add("pad", [data], before=before, after=after)
    elif any(ends):
        return None
    # For each tap the planes along the depth that it meets, one for each output.
    taken = [_every(site, data, tap * dilation, count, stride) for tap in range(depth)]
    data = site.add("concat", taken, axis=4) if depth > 1 else taken[0]
    data = site.reshape(data, (batch * count, *image, depth * channels))
    filters = np.moveaxis(weight, 0, 2).reshape(*window, depth * weight.shape[3], weight.shape[4])
    attrs = {"stride": tuple(strides), "padding": normalise_padding(2, sides), "dilation": tuple(dilations)}
    return _add_convolution(site, node, data, filters, attrs)


def _pays(node: Node, weight: Array, strides: Sequence[int], dilations: Sequence[int]) -> bool:
    """Tells whether stacked planes have an algorithm that a window of several planes lacks."""
    dense = list(weight.shape[1:3]) == [3, 3] and set(strides) == set(dilations) == {1}
    return dense and node.attrs["groups"] == 1 and weight.shape[4] >= LEAST_OUTPUTS


def _every(site: Site, value: str, first: int, count: int, step: int) -> str:
    """Selects `count` planes `first`, `first + step`... of a new value."""
    batch, frames, height, width, channels = site.builder.type(value).shape
    span = min(count * step, frames - first)
    if span < frames:
        value = site.add("slice", [value], begin=(0, first, 0, 0, 0), size=(batch, span, height, width, channels))
    if step == 1:
        return value
    # A strided slice is a copy, a contiguous one is read in place: `step` planes become rows of one taller plane, of
    # which the first rows are selected. That takes `step` planes for each output.
    if span < count * step:
        value = site.add("pad", [value], before=(0,) * 5, after=(0, count * step - span, 0, 0, 0))
    value = site.reshape(value, (batch, count, step * height, width, channels))
    return site.add("slice", [value], begin=(0,) * 5, size=(batch, count, height, width, channels))


def _add_convolution(site: Site, node: Node, data: str, filters: Array, attrs: Mapping[str, Any]) -> str:
    """Adds the convolution of planes, reshaped to the volume's shape."""
    weight = site.builder.constant(filters, node.inputs[1])
    found = site.add("conv2d", [data, weight], **attrs, groups=node.attrs["groups"])
    return site.add("reshape", [found], node.name, shape=node.type.shape)
