"""Chains of a layer and the element-wise nodes with constants that follow it, such as a bias and an activation.

If a layer is split, each part gets its own copy of the chain, so that the chain still ends the kernels.
"""

from __future__ import annotations

from collections.abc import Sequence

from autotune.graph.ir import Array, Node
from autotune.graph.ops import Kind, find
from autotune.graph.passes.site import Site


def chain_to(site: Site, node: Node, *ops: str) -> list[Node] | None:
    """Returns the nodes from a layer of `ops` to `node`; None if no chain leads there or it goes on behind `node`."""
    # Only from the last node of a chain, so that each chain is split once, as a whole.
    if _next(site, node) is not None:
        return None
    chain = [node]
    while chain[0].op not in ops:
        before = _find_source(site, chain[0])
        if before is None:
            return None
        chain.insert(0, before)
    return chain


def add_ending(site: Site, chain: Sequence[Node], value: str, region: Sequence[slice]) -> str:
    """Adds the nodes that follow a layer to a part of it.

    Args:
        site: site at which nodes are added.
        chain: the layer, then the nodes that follow it.
        value: new name of the part.
        region: slices of the layer's dimensions that form the part.
    """
    inside = chain[0].name
    for step in chain[1:]:
        inputs = [value if name == inside else _part(site, name, region) for name in step.inputs]
        value, inside = site.add(step.op, inputs, **step.attrs), step.name
    return value


def _part(site: Site, name: str, region: Sequence[slice]) -> str:
    """Adds the part of a constant that meets the region after broadcasting."""
    array = site.array(name)
    assert array is not None
    return site.builder.constant(_slice_region(array, region), name)


def _slice_region(array: Array, region: Sequence[slice]) -> Array:
    tail = region[len(region) - array.ndim :]
    return array[tuple(slice(None) if extent == 1 else s for s, extent in zip(tail, array.shape, strict=True))]


def _find_source(site: Site, node: Node) -> Node | None:
    """Returns the producer whose value an element-wise node changes by constants alone, in the same shape, or None."""
    if find(node.op).kind is not Kind.elementwise:
        return None
    operands = [name for name in node.inputs if site.array(name) is None]
    # Another reader would need the whole value, but the parts provide it only with their endings.
    if len(operands) != 1 or not site.private(operands[0]) or site.type(operands[0]).shape != node.type.shape:
        return None
    return site.graph.node(operands[0])


def _next(site: Site, node: Node) -> Node | None:
    """Returns the only reader of a node if the chain continues with it, otherwise None."""
    if not site.private(node.name):
        return None
    (reader,) = site.readers(node.name)
    return reader if _find_source(site, reader) is node else None
