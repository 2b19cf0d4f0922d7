"""Values that cost less to compute again in each kernel that reads them than to store.

A normalised value is a centred one times a scale of each channel. Training reads both again much later. If every later
reader is an element-wise kernel that could read the centred value instead, the product is computed there, and fused.
Memory then holds one of them.
"""

from __future__ import annotations

from collections import defaultdict

from autotune.graph.ir import Graph, GraphBuilder, Node
from autotune.graph.ops import Kind, find

CHEAP = frozenset({"add", "subtract", "multiply"})
"""Operations that take no time in a kernel that waits for memory."""
LEAST_BYTES = 1 << 16
"""Minimum bytes of a value that is computed again."""
SMALL = 16
"""An operand is small if it has at most one in so many of the value's elements."""


def repeat_scales(graph: Graph) -> Graph:
    """Computes products with, and sums with, small operands again in each element-wise reader but the first."""
    position = {node.name: at for at, node in enumerate(graph.nodes)}
    again: dict[str, list[Node]] = defaultdict(list)  # reader → values that it computes itself
    for node in graph.nodes:
        data = _large_operand(graph, node)
        if data is None or node.name in graph.outputs:
            continue
        _, *readers = graph.consumers()[node.name]
        last = max(position[reader.name] for reader in graph.consumers()[data])
        if all(_can_repeat(graph, node, reader) and position[reader.name] <= last for reader in readers):
            for reader in readers:
                again[reader.name].append(node)
    if not again:
        return graph
    builder = GraphBuilder(graph.name, graph.inputs, graph.output_names)
    names = {name: name for name in graph.inputs}
    names |= {name: builder.constant(array, name) for name, array in graph.constants.items()}
    for node in graph.nodes:
        own = {
            value.name: builder.keep(value, graph, [names[name] for name in value.inputs])
            for value in again.get(node.name, ())
        }
        names[node.name] = builder.keep(node, graph, [own.get(name, names[name]) for name in node.inputs])
    return builder.finish([names[name] for name in graph.outputs])


def _large_operand(graph: Graph, node: Node) -> str | None:
    """Returns the one operand of a value's shape, if the others are small and the value is large and cheap."""
    if node.op not in CHEAP or node.type.nbytes < LEAST_BYTES or len(graph.consumers()[node.name]) < 2:
        return None
    large = [name for name in node.inputs if graph.type(name).size * SMALL > node.type.size]
    if len(large) != 1 or graph.type(large[0]).shape != node.type.shape or large[0] in graph.constants:
        return None
    return large[0]


def _can_repeat(graph: Graph, node: Node, reader: Node) -> bool:
    """Tells whether a reader's kernel can begin with a value: no other operand's kernel would end with the reader."""
    if find(reader.op).kind is not Kind.elementwise or reader.type.shape != node.type.shape:
        return False
    others = [name for name in reader.inputs if name != node.name and graph.type(name).shape == node.type.shape]
    return all(len(graph.consumers()[name]) > 1 or graph.node(name) is None for name in others)
