"""A layer and the element-wise nodes with constants that follow it, such as a bias and an activation.

Where a layer is split, they go with its parts, so that they still end the kernels.
"""

from __future__ import annotations

from collections.abc import Sequence

from autotune.graph.ir import Array, Node
from autotune.graph.ops import Kind, find
from autotune.graph.passes.site import Site


def chain_to(site: Site, node: Node, *ops: str) -> list[Node] | None:
    """The nodes from a layer of `ops` to `node`; None where none leads there, or the chain goes on behind `node`."""
    # From its last node alone, so that each chain is split once and whole.
    if _next(site, node) is not None:
        return None
    chain = [node]
    while chain[0].op not in ops:
        before = _carried(site, chain[0])
        if before is None:
            return None
        chain.insert(0, before)
    return chain


def add_ending(site: Site, chain: Sequence[Node], value: str, region: Sequence[slice]) -> str:
    """Adds what follows a layer to a part of it.

    Args:
        site: where nodes are added.
        chain: the layer, then what follows it.
        value: new name of the part.
        region: of the layer's value that the part is, a slice of each dimension.
    """
    inside = chain[0].name
    for step in chain[1:]:
        inputs = [value if name == inside else _part(site, name, region) for name in step.inputs]
        value, inside = site.add(step.op, inputs, **step.attrs), step.name
    return value


def _part(site: Site, name: str, region: Sequence[slice]) -> str:
    """What of a constant meets the region once it is broadcast."""
    array = site.array(name)
    assert array is not None
    return site.builder.constant(_met(array, region), name)


def _met(array: Array, region: Sequence[slice]) -> Array:
    tail = region[len(region) - array.ndim :]
    return array[tuple(slice(None) if extent == 1 else s for s, extent in zip(tail, array.shape, strict=True))]


def _carried(site: Site, node: Node) -> Node | None:
    """The node whose value an element-wise node changes by constants alone, keeping its shape; None otherwise."""
    if find(node.op).kind is not Kind.elementwise:
        return None
    given = [name for name in node.inputs if site.array(name) is None]
    # Someone else who reads the value would need it whole, and the parts give it only with what follows.
    if len(given) != 1 or not site.private(given[0]) or site.type(given[0]).shape != node.type.shape:
        return None
    return site.graph.node(given[0])


def _next(site: Site, node: Node) -> Node | None:
    """The only reader of a node, where the chain goes on to it."""
    if not site.private(node.name):
        return None
    (reader,) = site.readers(node.name)
    return reader if _carried(site, reader) is node else None
