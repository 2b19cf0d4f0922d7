"""Convolutions without the taps of their window that lie in the padding wherever the window stands.

Dilated by 24 and padded by as much, a window of 3x3 over 14x14 pixels meets the image with its middle alone: all its
other products are with zeros, and the layer is a 1x1 convolution.
"""

from __future__ import annotations

from autotune.graph.ir import Graph, Node
from autotune.graph.passes.site import Site, pair, sweep
from search_space.operators.windows import both_sides, padding_of


def dead_taps(graph: Graph) -> Graph:
    """The graph with windows of two dimensions cut to what meets their image."""
    return sweep(graph, _cut)


def _cut(site: Site, node: Node) -> str | None:
    if node.op not in ("conv2d", "depthwise_conv2d"):
        return None
    weight = site.array(node.inputs[1])
    if weight is None:
        return None
    stride, dilation = pair(node.attrs["stride"]), pair(node.attrs["dilation"])
    margins = list(both_sides(padding_of(2, node.attrs["padding"])))
    extents, outputs = site.type(node.inputs[0]).shape[1:3], node.type.shape[1:3]
    kept = [range(size) for size in weight.shape[:2]]
    for axis, (before, after) in enumerate(margins):
        step, size = dilation[axis], weight.shape[axis]
        taps = _alive(size, extents[axis], outputs[axis], before, stride[axis], step)
        margin = before - taps.start * step, after - (size - taps.stop) * step
        if min(margin) >= 0:
            kept[axis], margins[axis] = taps, margin
    filters = weight[kept[0].start : kept[0].stop, kept[1].start : kept[1].stop]
    if filters.shape == weight.shape:
        return None
    spread = tuple(1 if size == 1 else step for size, step in zip(filters.shape[:2], dilation, strict=True))
    inputs = [site.new[node.inputs[0]], site.builder.constant(filters, node.inputs[1])]
    attrs = {**node.attrs, "padding": padding_of(2, margins), "dilation": spread}
    return site.add(node.op, inputs, node.name, **attrs)


def _alive(size: int, extent: int, outputs: int, padding: int, stride: int, dilation: int) -> range:
    """The taps from the first to the last that meets the image for some output; all where none does.

    Args:
        size: taps along an axis.
        extent: of the image along it.
        outputs: places of the window.
        padding, stride, dilation: in pixels.
    """
    places = [
        range(tap * dilation - padding, tap * dilation - padding + outputs * stride, stride) for tap in range(size)
    ]
    alive = [tap for tap, positions in enumerate(places) if any(0 <= p < extent for p in positions)]
    return range(alive[0], alive[-1] + 1) if alive else range(size)
