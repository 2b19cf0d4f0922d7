"""Window means moved from behind 1x1 convolutions to before them, which leaves fewer pixels to convolve.

Both are linear: a mean weights pixels, the convolution weights channels. DenseNet's transitions end so. A mean of
several results averages their rounding errors, while a mean of data does not. The error becomes that of a convolution
without a mean behind it. So the pass runs only on request.
"""

from __future__ import annotations

from dataclasses import dataclass

from autotune.graph.ir import Graph, Node
from autotune.graph.passes.pipeline import GraphPass
from autotune.graph.passes.site import Site, orders, pair, sweep


@dataclass(frozen=True)
class EarlyMeans(GraphPass):
    """A pass that moves window means before a float32 1x1 convolution whose result has no other reader."""

    name = "early_means"

    def apply(self, graph: Graph) -> Graph:
        return sweep(graph, _move_mean)


def _move_mean(site: Site, node: Node) -> str | None:
    """Moves a mean before a convolution and before the per-channel bias behind it."""
    if node.op != "avg_pool2d" or node.type.dtype != "float32":
        return None
    value, bias = node.inputs[0], None
    padded = pair(node.attrs["padding"]) != (0, 0) and node.attrs["count_padding"]
    if (total := site.node(value, "add")) is not None and site.private(value) and not padded:
        for first, second in orders(total):
            array = site.array(second)
            if array is not None and array.shape[-1:] == (array.size,):
                value, bias = first, second
    conv = site.node(value, "conv2d")
    if conv is None or not site.private(value) or not _is_of_pixels(site, conv):
        return None
    data = conv.inputs[0]
    if site.type(data).dtype != "float32" or 2 * node.type.size > conv.type.size:
        return None
    mean = site.add("avg_pool2d", [site.new[data]], **node.attrs)
    result = site.add("conv2d", [mean, site.new[conv.inputs[1]]], node.name, **conv.attrs)
    return result if bias is None else site.add("add", [result, site.new[bias]], node.name)


def _is_of_pixels(site: Site, conv: Node) -> bool:
    """Tells whether each output pixel of a convolution depends on its own input pixel alone."""
    window = site.type(conv.inputs[1]).shape[:2]
    return window == pair(conv.attrs["stride"]) == (1, 1) and pair(conv.attrs["padding"]) == (0, 0)
