"""Products of one row with several constants as one product: fewer kernels start, and the row is rounded once.

The results are slices of a row, which are read in place. So a decoder's step computes query, key and value at once.
Constants that are added to all of the products are joined as well.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autotune.graph.decisions import decide
from autotune.graph.ir import Graph, GraphBuilder, Node, rewrite
from autotune.graph.passes.dead_code import dead_code
from search_space.dtypes import numpy_dtype

LARGEST = 8 << 20
"""Bytes of the joined constants at most: those of more are read for so long that a kernel's start is a small share."""
PRODUCTS = ("matmul", "matmul_nbits", "dynamic_matmul")
"""Products whose constants have an output in each element of the last axis."""


@dataclass(frozen=True)
class _Group:
    """Products of one row.

    Attributes:
        products: the products in the order of the graph.
        sums: sum of each product with a constant; empty if some have none.
    """

    products: tuple[Node, ...]
    sums: tuple[Node, ...]


def joined_products(graph: Graph, alignment: int = 1) -> Graph:
    """Joins products of one row with constants.

    Args:
        graph: graph, not modified.
        alignment: bytes to which each result must be aligned, so that it is read in place.
    """
    read = dead_code(graph)  # dead nodes must not count as readers
    groups = {group.products[0].name: group for group in _list_groups(read, alignment)}
    if not groups:
        return graph
    return dead_code(_replace_products(read, groups))


def _replace_products(graph: Graph, groups: Mapping[str, _Group]) -> Graph:
    """Computes each group at the place of its first product, whose name is the key."""
    replaced: dict[str, str] = {}

    def visit(builder: GraphBuilder, node: Node, inputs: list[str]) -> str | None:
        if node.name in groups:
            group = groups[node.name]
            value = _join(builder, graph, group, inputs[0])
            begin = 0
            for old in group.sums or group.products:
                replaced[old.name] = builder.add("slice", [value], begin=(0, begin), size=old.type.shape)
                begin += old.type.shape[1]
        return replaced.get(node.name)

    return rewrite(graph, visit)


def _list_groups(graph: Graph, alignment: int) -> list[_Group]:
    """Lists the groups of products that are joined."""
    alike: dict[tuple[object, ...], list[Node]] = defaultdict(list)
    for node in graph.nodes:
        if _is_joinable(graph, node, alignment):
            constants = [graph.type(name) for name in node.inputs[1:]]
            kinds = tuple((constant.dtype, constant.shape[:-1]) for constant in constants)
            alike[node.op, node.inputs[0], tuple(sorted(node.attrs.items())), kinds].append(node)
    groups = []
    for products in alike.values():
        nbytes = sum(graph.type(name).nbytes for node in products for name in node.inputs[1:])
        if len(products) > 1 and nbytes <= LARGEST:
            sums = [_find_sum(graph, node) for node in products]
            biases = tuple(node for node in sums if node is not None)
            groups.append(_Group(tuple(products), biases if len(biases) == len(products) else ()))
    return groups


def _is_joinable(graph: Graph, node: Node, alignment: int) -> bool:
    """Tells whether a node is a product of one row with constants, whose result fills whole units of memory."""
    if node.op not in PRODUCTS or node.name in graph.outputs:
        return False
    if not all(name in graph.constants for name in node.inputs[1:]):
        return False
    rows, columns = node.type.shape
    aligned = columns * numpy_dtype(node.type.dtype).itemsize % alignment == 0
    # Graphs of a network with an open number of rows are alike, also that of a single one.
    return aligned and decide("join", node.name, rows == 1)


def _find_sum(graph: Graph, product: Node) -> Node | None:
    """Returns the sum of a product and a constant row, if nothing else reads the product."""
    readers = graph.consumers()[product.name]
    if len(readers) != 1 or readers[0].op != "add" or readers[0].type != product.type:
        return None
    bias = _bias(readers[0], product.name)
    array, columns = graph.constants.get(bias), product.type.shape[1]
    return readers[0] if array is not None and array.shape in ((columns,), (1, columns)) else None


def _bias(node: Node, product: str) -> str:
    """Returns the operand of a sum that is not the product."""
    first, second = node.inputs
    return second if first == product else first


def _join(builder: GraphBuilder, graph: Graph, group: _Group, row: str) -> str:
    """Adds the joined product, and the joined sum; returns the name of the result."""
    first = group.products[0]

    def join(names: Sequence[str]) -> str:
        arrays = [graph.constants[name] for name in names]
        return builder.constant(np.concatenate(arrays, axis=-1), f"{names[0]}_joined")

    columns = zip(*(node.inputs[1:] for node in group.products), strict=True)
    value = builder.add(first.op, [row, *map(join, columns)], **first.attrs)
    if not group.sums:
        return value
    biases = [_bias(node, product.name) for node, product in zip(group.sums, group.products, strict=True)]
    flat = [graph.constants[name].reshape(-1) for name in biases]
    return builder.add("add", [value, builder.constant(np.concatenate(flat), f"{biases[0]}_joined")])
