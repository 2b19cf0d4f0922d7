"""Training steps in bfloat16: the values that are multiplied and stored in it, and those that stay in float32.

Parameters, states of the optimiser and gradients of parameters are in float32, as with PyTorch's autocast. Layers and
their gradients multiply bfloat16 and add up float32. Values that such products read or write are stored in bfloat16, so
that those kept for the gradients take half the memory. All other values are in float32: losses, statistics, inputs of a
softmax, and the sums that a transformer carries from layer to layer, with their gradients.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autotune.compiler.modes import precision_mode
from autotune.compiler.modes.base import Inputs, Mode
from autotune.compiler.modes.narrow import BFloat16
from autotune.graph.ir import Graph, Node
from autotune.graph.ops import Kind, find
from autotune.graph.partition import group_nodes
from autotune.graph.passes.pipeline import GraphPass
from autotune.graph.precision import is_lowered, lower_values, residual_stream, scores
from autotune.graph.views import locate
from search_space.operators.checks import choice

if TYPE_CHECKING:
    from autotune.compiler.options import CompileOptions

NORMALISATIONS = ("layer_norm", "rms_norm")
"""Operations whose gradients belong to a residual stream."""


@dataclass(frozen=True)
class LowerStep(GraphPass):
    """Pass that lowers the products of a training step to a 16-bit float.

    Attributes:
        precision: name of the type.
    """

    precision: str
    name = "lower_step"

    def apply(self, graph: Graph) -> Graph:
        return lower_values(graph, self.precision, stored_values(graph))


class BFloat16Training(BFloat16):
    """Mode of a training step whose layers multiply bfloat16; parameters and their gradients are in float32."""

    def late(self, options: CompileOptions, inputs: Inputs) -> Sequence[GraphPass]:
        return (LowerStep(self.name),)


def training_mode(precision: str) -> Mode:
    """Returns the mode of a training step.

    Raises:
        ValueError: the precision is another one, such as float16, whose gradients would need a scale.
    """
    choice("precision", precision, ("float32", "bfloat16"))
    return BFloat16Training() if precision == "bfloat16" else precision_mode(precision)


def stored_values(graph: Graph) -> set[str]:
    """Collects values of a training step that are stored in 16 bits: those that products read or write.

    Args:
        graph: graph of a step after the passes; its first output is the loss.
    """
    products = {node.name for node in graph.nodes if is_lowered(graph, node)}
    read = _sources(graph, [name for node in graph.nodes if node.name in products for name in node.inputs])
    excluded = scores(graph) | _stream(graph) | _final(graph, products)
    return {
        nodes[-1].name
        for nodes, nothing in group_nodes(graph, locate(graph))
        if not nothing
        and nodes[-1].type.dtype == "float32"
        and (nodes[0].name in products or nodes[-1].name in read)
        and not find(nodes[-1].op).moves
        and nodes[-1].name not in excluded
    }


def _sources(graph: Graph, names: Sequence[str]) -> set[str]:
    """Adds to values those that they are moved from."""
    values = set(names)
    for node in reversed(graph.nodes):
        if node.name in values and find(node.op).moves:
            values.update(node.inputs)
    return values


def _final(graph: Graph, products: Collection[str]) -> set[str]:
    """Collects the values of the loss after the last product, and the new states as far back as a sum or product."""
    of_loss, of_states = {graph.outputs[0]}, set(graph.outputs[1:])
    for node in reversed(graph.nodes):
        if node.name in of_loss and node.name not in products:
            of_loss.update(node.inputs)
        if node.name in of_states and (find(node.op).moves or find(node.op).kind is Kind.elementwise):
            of_states.update(node.inputs)
    return of_loss | of_states


def _stream(graph: Graph) -> set[str]:
    """Collects the sums that a transformer carries from layer to layer, and the sums of their gradients."""
    stream = residual_stream(graph)
    if not stream:
        return stream
    sums = [node for node in graph.nodes if _adds_computed(graph, node)]
    summands = _sources(graph, [name for node in sums for name in node.inputs])
    stream.update(node.name for node in sums)
    return stream | {
        node.name
        for node in graph.nodes
        if node.op == "gradient" and node.attrs["operation"] in NORMALISATIONS and node.name in summands
    }


def _adds_computed(graph: Graph, node: Node) -> bool:
    """Tells whether a node adds two computed values of its own shape."""
    return node.op == "add" and all(
        graph.node(name) is not None and graph.type(name).shape == node.type.shape for name in node.inputs
    )
