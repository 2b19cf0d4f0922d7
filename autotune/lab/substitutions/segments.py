"""Graphs cut into a row of smaller ones, each of which passes one value on to the next."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.graph.ir import Graph, GraphBuilder, Node, without_unread_constants


def cut(graph: Graph, least: int) -> list[Graph]:
    """Cuts a graph into segments of at least `least` nodes each, but for the last, in order.

    Each segment has the inputs that it reads, and its outputs are the values read after it or by the caller.
    """
    last: dict[str, int] = {}
    for index, node in enumerate(graph.nodes):
        for name in node.inputs:
            last[name] = index
    for name in graph.outputs:
        last[name] = len(graph.nodes)
    parts: list[Graph] = []
    live: set[str] = set()
    begin = 0
    for index, node in enumerate(graph.nodes):
        live = {name for name in (*live, node.name) if last.get(name, -1) > index}
        if len(live) == 1 and index + 1 - begin >= least and index + 1 < len(graph.nodes):
            parts.append(_part(graph, graph.nodes[begin : index + 1], last, index))
            begin = index + 1
    return [*parts, _part(graph, graph.nodes[begin:], last, len(graph.nodes) - 1)]


def _part(graph: Graph, nodes: Sequence[Node], last: dict[str, int], index: int) -> Graph:
    inside = {node.name for node in nodes}
    read = dict.fromkeys(name for node in nodes for name in node.inputs if name not in inside)
    inputs = {name: graph.type(name) for name in read if name not in graph.constants}
    outputs = [node.name for node in nodes if last.get(node.name, -1) > index]
    part = Graph(graph.name, inputs, graph.constants, tuple(nodes), tuple(outputs))
    return without_unread_constants(part)


def join_segments(graph: Graph, parts: Sequence[Graph], new: Sequence[Graph]) -> Graph:
    """Builds the complete graph of new segments that have the same outputs in the same order."""
    builder = GraphBuilder(graph.name, graph.inputs, graph.output_names)
    names = {name: name for name in graph.inputs}
    names |= {name: builder.constant(array, name) for name, array in graph.constants.items()}
    for old, part in zip(parts, new, strict=True):
        inside = {name: names[name] for name in part.inputs}
        # Rules make weights of weights by nodes, so that every constant is one of the whole graph.
        inside |= {name: names[name] for name in part.constants}
        for node in part.nodes:
            inside[node.name] = builder.add(node.op, [inside[i] for i in node.inputs], node.name, **node.attrs)
        names |= {before: inside[after] for before, after in zip(old.outputs, part.outputs, strict=True)}
    return without_unread_constants(builder.finish(names[name] for name in graph.outputs))
