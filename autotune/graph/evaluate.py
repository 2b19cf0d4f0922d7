"""Evaluation of graphs in NumPy, node by node: the reference for passes and executables."""

from __future__ import annotations

from collections.abc import Mapping

from autotune.graph.ir import Array, Graph, GraphError, Node, array_type
from autotune.graph.ops import find


def evaluate(
    graph: Graph, inputs: Mapping[str, Array], overrides: Mapping[str, Array] | None = None
) -> dict[str, Array]:
    """Computes every value of a graph, by name.

    Args:
        graph: graph to evaluate.
        inputs: inputs of the graph, by name.
        overrides: values of nodes that are used instead of computed ones.

    Raises:
        GraphError: inputs are missing, surplus, or of another type.
    """
    if set(inputs) != set(graph.inputs):
        raise GraphError(f"inputs must be {', '.join(graph.inputs)}, but got {', '.join(inputs) or 'none'}")
    for name, kind in graph.inputs.items():
        if array_type(inputs[name]) != kind:
            raise GraphError(f"input `{name}` must be {kind}, but got {array_type(inputs[name])}")
    values = {**inputs, **graph.constants}
    known = overrides or {}
    for node in graph.nodes:
        values[node.name] = known[node.name] if node.name in known else compute(node, values)
    return values


def compute(node: Node, values: Mapping[str, Array]) -> Array:
    """Computes the value of one node from its inputs."""
    return find(node.op).evaluate(node.attrs, [values[name] for name in node.inputs])
