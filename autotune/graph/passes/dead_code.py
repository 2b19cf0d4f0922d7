"""Removes nodes whose values nobody reads."""

from __future__ import annotations

from dataclasses import replace

from autotune.graph.ir import Graph, Node, without_unread_constants


def dead_code(graph: Graph) -> Graph:
    """The graph without the nodes and constants that no output depends on. Inputs stay: they are the caller's."""
    read = set(graph.outputs)
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if node.name in read:
            kept.append(node)
            read.update(node.inputs)
    nodes = tuple(reversed(kept))
    return without_unread_constants(replace(graph, nodes=nodes))
