"""The forward graph of a training step, however it was read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from autotune.graph.errors import GraphError
from autotune.graph.ir import Array, Graph, GraphBuilder, without_unread_constants
from autotune.graph.types import TensorType
from autotune.training.losses import LOSSES, TARGETS, target_type
from search_space.dtypes import FLOATS


@dataclass(frozen=True)
class ForwardGraph:
    """A forward graph with its loss.

    Attributes:
        graph: graph whose inputs are the batch, parameters and buffers.
        loss: value to minimise.
        parameters: inputs to train, with their values.
        buffers: inputs that a step replaces, with their values.
        new_buffers: buffer → value that replaces it.
        classes: number of classes of the targets; None: they are no classes.
        masks: inputs of random truth values, as of dropout → probability that they hold; drawn anew in each step.
    """

    graph: Graph
    loss: str
    parameters: Mapping[str, Array]
    buffers: Mapping[str, Array]
    new_buffers: Mapping[str, str]
    classes: int | None = None
    masks: Mapping[str, float] = field(default_factory=dict)


def check_parameters(types: Mapping[str, TensorType]) -> None:
    """Checks the types of parameters.

    Raises:
        GraphError: a parameter is not float32.
    """
    for name, kind in types.items():
        if kind.dtype != "float32":
            raise GraphError(f"parameters must be float32, but got {name}: {kind}")


def read_graph(graph: Graph, loss: str) -> ForwardGraph:
    """Adds a loss to a graph, whose constants become parameters.

    Parameters are the constants of floats of more than one element; only float32 is trained. Statistics of a
    normalisation are not among the constants of an imported graph: its scale and shift are.

    Args:
        graph: graph of a model, with one output that the loss reads.
        loss: a name of `losses.LOSSES`.

    Raises:
        GraphError: the graph has several outputs, no parameters or some in 16 bits, or an output that the loss does
            not fit.
    """
    if len(graph.outputs) != 1:
        raise GraphError(f"a model must have one output to be trained, but has {', '.join(graph.output_names)}")
    (output,) = graph.outputs
    parameters = {n: array for n, array in graph.constants.items() if str(array.dtype) in FLOATS and array.size > 1}
    if not parameters:
        raise GraphError("a model must have constants in float32 to train, but has none")
    types = {name: graph.type(name) for name in parameters}
    check_parameters(types)
    kind = target_type(loss, graph.type(output))
    builder = GraphBuilder(graph.name, {TARGETS: kind, **graph.inputs, **types})
    names = {name: name for name in (*graph.inputs, *types)}
    for name, array in graph.constants.items():
        if name not in types:
            names[name] = builder.constant(array, name)
    for node in graph.nodes:
        names[node.name] = builder.keep(node, graph, [names[name] for name in node.inputs])
    classes = graph.type(output).shape[1] if loss == "cross_entropy" else None
    value = LOSSES[loss](builder, names[output])
    return ForwardGraph(without_unread_constants(builder.finish([value])), value, parameters, {}, {}, classes)
