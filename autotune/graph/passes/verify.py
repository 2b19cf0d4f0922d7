"""Verification of graphs: every node must have the type inferred from its inputs and attributes."""

from __future__ import annotations

from autotune.graph.ir import Graph, GraphError
from autotune.graph.ops import find


def verify(graph: Graph) -> None:
    """Infers the type of every node anew. Names and order were checked when the graph was built.

    Raises:
        GraphError: a node's attributes are not in canonical form, or its type is not the inferred one.
    """
    for node in graph.nodes:
        kinds = [graph.type(name) for name in node.inputs]
        operation = find(node.op)
        try:
            attrs = operation.attributes(node.attrs, kinds)
            kind = operation.infer(attrs, kinds)
        except (ValueError, TypeError) as error:
            raise GraphError(f"{node.op} node {node.name!r} must be well-formed, but: {error}") from None
        if attrs != dict(node.attrs):
            raise GraphError(
                f"attributes of {node.op} node {node.name!r} must be {attrs}, but got attrs={dict(node.attrs)}"
            )
        if kind != node.type:
            raise GraphError(f"{node.op} node {node.name!r} must be of type {kind}, but got type={node.type}")
