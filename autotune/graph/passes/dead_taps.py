"""Convolutions without the filter taps that meet only padding.

A 3x3 window dilated and padded by 24 over 14x14 pixels meets the image with its middle tap alone. All other products
are with zeros, and the layer is a 1x1 convolution.
"""

from __future__ import annotations

from autotune.graph.ir import Graph, Node
from autotune.graph.passes.site import Site, per_axis, sweep
from autotune.graph.passes.split_windows import Axis
from search_space.operators.windows import both_sides, normalise_padding

_RANKS = {"conv1d": 1, "conv2d": 2, "depthwise_conv2d": 2, "conv3d": 3}


def dead_taps(graph: Graph) -> Graph:
    """Cuts windows of convolutions to the taps that meet the image."""
    return sweep(graph, _cut)


def _cut(site: Site, node: Node) -> str | None:
    rank = _RANKS.get(node.op)
    if rank is None:
        return None
    weight = site.array(node.inputs[1])
    if weight is None:
        return None
    stride, dilation = (per_axis(node.attrs[name], rank) for name in ("stride", "dilation"))
    margins = list(both_sides(normalise_padding(rank, node.attrs["padding"])))
    extents, outputs = site.type(node.inputs[0]).shape[1:-1], node.type.shape[1:-1]
    tap_ranges = [range(size) for size in weight.shape[:rank]]
    for axis, (before, after) in enumerate(margins):
        step, size = dilation[axis], weight.shape[axis]
        of = Axis(extents[axis], size, outputs[axis], before, stride[axis], step)
        taps = of.reaching(range(outputs[axis])) or range(size)
        margin = before - taps.start * step, after - (size - taps.stop) * step
        # Negative padding would be a slice of the image in front of the layer.
        if min(margin) >= 0:
            tap_ranges[axis], margins[axis] = taps, margin
    filters = weight[tuple(slice(taps.start, taps.stop) for taps in tap_ranges)]
    if filters.shape == weight.shape:
        return None
    spread = tuple(1 if size == 1 else step for size, step in zip(filters.shape[:rank], dilation, strict=True))
    inputs = [site.new[node.inputs[0]], site.builder.constant(filters, node.inputs[1])]
    attrs = {**node.attrs, "padding": normalise_padding(rank, margins), "dilation": spread}
    return site.add(node.op, inputs, node.name, **attrs)
