"""Means of windows before 1x1 convolutions instead of behind them, where fewer pixels are left to convolve.

Both are linear: a mean weighs pixels, and the convolution weighs channels. DenseNet's transitions end so. A mean of
several results evens out their rounding errors, and one of data does not: the error is that of a convolution behind
which nothing is averaged. So the pass runs where it is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass

from autotune.graph.ir import Graph, Node
from autotune.graph.passes.pipeline import GraphPass
from autotune.graph.passes.site import Site, orders, pair, sweep


@dataclass(frozen=True)
class EarlyMeans(GraphPass):
    """Takes means of windows before a 1x1 convolution in float32 whose result they alone read."""

    name = "early_means"

    def apply(self, graph: Graph) -> Graph:
        return sweep(graph, _moved)


def _moved(site: Site, node: Node) -> str | None:
    """Moves a mean before a convolution, and before a number for each channel that is added behind it."""
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
    """Tells whether a convolution reads each pixel once, and no other at the same place of its result."""
    window = site.type(conv.inputs[1]).shape[:2]
    return window == pair(conv.attrs["stride"]) == (1, 1) and pair(conv.attrs["padding"]) == (0, 0)
