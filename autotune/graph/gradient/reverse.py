"""Reverse mode over a graph: adds the gradients of a value of one element."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autotune.graph.errors import GraphError
from autotune.graph.gradient import layers as layers  # registers its rules
from autotune.graph.gradient.accumulation import SliceGradient, add_up, join_slices
from autotune.graph.gradient.rules import differentiate_node
from autotune.graph.gradient.sums import expand
from autotune.graph.ir import Graph, GraphBuilder, Node, rewrite
from autotune.graph.ops.base import STOP_GRADIENT
from search_space.dtypes import FLOATS


def add_gradients(builder: GraphBuilder, graph: Graph, loss: str, parameters: Sequence[str]) -> dict[str, str]:
    """Adds the gradients of a loss by values of a graph; none passes a `stop_gradient`.

    Args:
        builder: builder that has all values of the graph, by the same names.
        graph: graph to differentiate.
        loss: name of a floating-point value of one element.
        parameters: names of values.

    Returns:
        Name of each parameter's gradient; of parameters that the loss does not depend on, none.

    Raises:
        GraphError: a node has no gradient, or the loss has several elements.
    """
    kind = graph.type(loss)
    if kind.size != 1 or kind.dtype not in FLOATS:
        raise GraphError(f"`loss` must be a floating-point value of one element, but got {loss}: {kind}")
    between = set(parameters)
    for node in graph.nodes:
        if node.op != STOP_GRADIENT and node.type.dtype in FLOATS and any(name in between for name in node.inputs):
            between.add(node.name)
    # Slopes are in float32, as all that is computed; those of parameters of 16 bits are rounded once.
    slopes: dict[str, list[str]] = {loss: [builder.constant(np.ones(kind.shape, np.float32), "one")]}
    slices: dict[str, list[SliceGradient]] = {}
    gradients: dict[str, str] = {}

    def differentiate(node: Node, slope: str) -> None:
        wanted = [name in between for name in node.inputs]
        if node.op == STOP_GRADIENT or not any(wanted):  # it makes a parameter
            return
        try:
            shares = differentiate_node(builder, node, node.inputs, slope, wanted)
        except ValueError as error:
            raise GraphError(f"{node.op} node {node.name!r} must have a gradient, but: {error}") from None
        for name, share in zip(node.inputs, shares, strict=True):
            if share is not None:
                slopes.setdefault(name, []).append(share)

    def add_slopes(name: str) -> str | None:
        """Adds up the gradients of a value by all that read it; None if nothing does."""
        pieces = slices.pop(name, [])
        joined = join_slices(builder, graph.type(name).shape, pieces)
        if joined is not None:
            slopes.setdefault(name, []).append(joined)
        else:
            for piece in pieces:
                differentiate(piece.node, piece.slope)
        return add_up(builder, slopes[name]) if name in slopes else None

    for node in reversed(graph.nodes):
        if node.name not in between or (slope := add_slopes(node.name)) is None:
            continue
        if node.op == "slice" and node.inputs[0] in between:
            slices.setdefault(node.inputs[0], []).append(SliceGradient(node, slope))
        else:
            differentiate(node, slope)
    for name in parameters:
        if (slope := add_slopes(name)) is not None:
            gradients[name] = expand(builder, slope, graph.type(name).shape)
            if graph.type(name).dtype != "float32":
                gradients[name] = builder.add("cast", [gradients[name]], dtype=graph.type(name).dtype)
    return gradients


def find_dependencies(graph: Graph, loss: str) -> set[str]:
    """Collects the values that a loss depends on through floating-point values, but not through a `stop_gradient`."""
    reached = {loss}
    for node in reversed(graph.nodes):
        if node.name in reached and node.op != STOP_GRADIENT and node.type.dtype in FLOATS:
            reached.update(node.inputs)
    return reached


def remove_stops(graph: Graph) -> Graph:
    """Removes the `stop_gradient` nodes of a graph that has its gradients: their readers read the inputs of these."""
    if not any(node.op == STOP_GRADIENT for node in graph.nodes):
        return graph
    return rewrite(graph, lambda builder, node, inputs: inputs[0] if node.op == STOP_GRADIENT else None)
