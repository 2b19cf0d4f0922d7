"""Convolutions in a few wide groups as that many convolutions of slices, whose results are concatenated.

Slices are read and concatenations written in place (`autotune.graph.views`), so nothing is copied. Each part is an
ordinary convolution, for which there are more algorithms. Element-wise nodes with constants, such as a bias and an
activation, are split with the parts, so that they still end the kernels.
"""

from __future__ import annotations

from autotune.graph.ir import Graph, Node
from autotune.graph.passes.chains import add_ending, chain_to
from autotune.graph.passes.site import Site, sweep

MOST_GROUPS = 8
LEAST_CHANNELS = 16
"""Minimum input and output channels of a group: fewer do not fill a vector, so these groups stay together."""


def split_groups(graph: Graph) -> Graph:
    """Splits convolutions in a few wide groups."""
    return sweep(graph, _split)


def _split(site: Site, node: Node) -> str | None:
    """Splits the chain from a grouped convolution to its last node."""
    chain = chain_to(site, node, "conv2d")
    if chain is None:
        return None
    conv = chain[0]
    groups, weight = conv.attrs["groups"], site.array(conv.inputs[1])
    if not 1 < groups <= MOST_GROUPS or weight is None:
        return None
    *_, depth, outputs = weight.shape
    width = outputs // groups
    if depth < LEAST_CHANNELS or width < LEAST_CHANNELS:
        return None
    parts = []
    shape = site.type(conv.inputs[0]).shape
    for group in range(groups):
        begin = (*[0] * (len(shape) - 1), group * depth)
        data = site.add("slice", [site.new[conv.inputs[0]]], begin=begin, size=(*shape[:-1], depth))
        columns = slice(group * width, (group + 1) * width)
        filters = site.builder.constant(weight[..., columns], f"{conv.inputs[1]}_{group}")
        value = site.add("conv2d", [data, filters], **{**conv.attrs, "groups": 1})
        parts.append(add_ending(site, chain, value, (*[slice(None)] * (len(shape) - 1), columns)))
    return site.add("concat", parts, node.name, axis=len(node.type.shape) - 1)
