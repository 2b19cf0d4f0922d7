"""Convolutions in a few wide groups as that many convolutions of slices, whose results are concatenated.

Slices are read and concatenations written in place (`autotune.graph.views`), so nothing is copied, and each part is an
ordinary convolution, for which there are more algorithms. Element-wise nodes with constants, such as a bias and an
activation, go with the parts, so that they still end the kernels.
"""

from __future__ import annotations

from autotune.graph.ir import Array, Graph, Node
from autotune.graph.ops import Kind, find
from autotune.graph.passes.site import Site, sweep

MOST_GROUPS = 8
LEAST_CHANNELS = 16
"""Of input and output in a group: fewer do not fill a vector, and are better left together."""


def split_groups(graph: Graph) -> Graph:
    """The graph without convolutions in wide groups."""
    return sweep(graph, _split)


def _split(site: Site, node: Node) -> str | None:
    """Splits the chain from a grouped convolution that ends here."""
    if _next(site, node) is not None:
        return None
    chain = [node]
    while chain[0].op != "conv2d":
        before = _carried(site, chain[0])
        if before is None:
            return None
        chain.insert(0, before)
    conv, *rest = chain
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
        inside = conv.name
        for step in rest:
            inputs = [value if name == inside else _part(site, name, columns, outputs) for name in step.inputs]
            value, inside = site.add(step.op, inputs, **step.attrs), step.name
        parts.append(value)
    return site.add("concat", parts, node.name, axis=len(node.type.shape) - 1)


def _part(site: Site, name: str, columns: slice, outputs: int) -> str:
    """The constant, or its slice where it differs along the channels."""
    array = site.array(name)
    assert array is not None
    return site.builder.constant(array[..., columns] if _per_channel(array, outputs) else array, name)


def _per_channel(array: Array, outputs: int) -> bool:
    return array.ndim > 0 and array.shape[-1] == outputs


def _carried(site: Site, node: Node) -> Node | None:
    """The node whose value an element-wise node changes by constants alone, keeping its shape; None otherwise."""
    if find(node.op).kind is not Kind.elementwise:
        return None
    given = [name for name in node.inputs if site.array(name) is None]
    if len(given) != 1 or not site.private(given[0]) or site.type(given[0]).shape != node.type.shape:
        return None
    return site.graph.node(given[0])


def _next(site: Site, node: Node) -> Node | None:
    """The only reader of a node, where the chain goes on to it."""
    if not site.private(node.name):
        return None
    (reader,) = site.readers(node.name)
    return reader if _carried(site, reader) is node else None
