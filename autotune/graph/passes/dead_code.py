"""Removal of nodes whose values are never read."""

from __future__ import annotations

from dataclasses import replace

from autotune.graph.ir import Graph, Node, without_unread_constants


def dead_code(graph: Graph) -> Graph:
    """Removes nodes and constants that no output depends on. Inputs stay, as they are part of the interface."""
    read = set(graph.outputs)
    live: list[Node] = []
    for node in reversed(graph.nodes):
        if node.name in read:
            live.append(node)
            read.update(node.inputs)
    nodes = tuple(reversed(live))
    return without_unread_constants(replace(graph, nodes=nodes))
