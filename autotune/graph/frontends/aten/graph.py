"""Import of FX graphs of ATen operators, node by node; PyTorch evaluates nodes that depend on constants alone."""

from __future__ import annotations

import operator
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch.fx import Graph as FxGraph
from torch.fx import Node

from autotune.graph.decisions import decide
from autotune.graph.errors import GraphError, UnsupportedModelError
from autotune.graph.frontends.aten.registry import CONVERTERS, OPSET, AtenCall, AtenContext, operator_name, tensor_type
from autotune.graph.frontends.aten.tensors import array_from_tensor, tensor_from_array
from autotune.graph.frontends.onnx.importer.nodes import MOST_FOLDED
from autotune.graph.ir import Array, Graph, GraphBuilder
from autotune.graph.ir import Node as GraphNode
from search_space.dtypes import NARROW


@dataclass(frozen=True)
class IndexCheck:
    """A range check on the elements of an index tensor.

    Attributes:
        is_input: whether the tensor is an input; otherwise it is an output.
        position: number among the inputs or outputs.
        inside: values that elements may have.
    """

    is_input: bool
    position: int
    inside: range


@dataclass
class ConstantValues:
    """Values of nodes that depend on constants alone.

    Attributes:
        arrays: values by node.
        parts: values of nodes with several outputs, by node.
    """

    arrays: dict[str, Array] = field(default_factory=dict)
    parts: dict[str, Sequence[Any]] = field(default_factory=dict)

    def learn(self, node: Node) -> bool:
        """Computes a node if it is deterministic and reads only constants; tells whether its value is available."""
        if node.name in self.arrays or node.name in self.parts:
            return True
        if node.op != "call_function":
            return False
        if node.target is operator.getitem:
            return self._keep(node, self.parts.get(_first(node).name, {}))
        read = node.all_input_nodes
        if not all(given.name in self.arrays for given in read) or not _repeatable(node) or _large(node):
            return False

        def tensor(source: Node) -> torch.Tensor:
            array = self.arrays[source.name]
            repeated = node.target is torch.ops.aten.as_strided.default and 0 in array.strides
            return tensor_from_array(
                array.copy() if repeated else array
            )  # its strides assume memory with every element

        args = torch.fx.map_arg(node.args, tensor)
        kwargs = torch.fx.map_arg(node.kwargs, tensor)
        target: Any = node.target
        with torch.no_grad():
            value = target(*args, **kwargs)
        if isinstance(value, torch.Tensor):
            self.arrays[node.name] = array_from_tensor(value)
        elif isinstance(value, (tuple, list)):
            self.parts[node.name] = value
        else:
            return False
        return True

    def _keep(self, node: Node, parts: Any) -> bool:
        place: Any = node.args[1]
        if not parts or not isinstance(parts[place], torch.Tensor):
            return False
        self.arrays[node.name] = array_from_tensor(parts[place])
        return True


def import_fx(
    graph: FxGraph,
    inputs: Sequence[Node],
    outputs: Sequence[Node],
    constants: ConstantValues,
    name: str = "network",
    apart: Container[Node] = (),
    checks: list[IndexCheck] | None = None,
    output_names: Sequence[str] = (),
    stops_gradients: bool = False,
) -> Graph:
    """Converts the part of an FX graph that computes some nodes from others.

    Args:
        graph: graph of ATen operators whose nodes have the type of their value (`meta["val"]`).
        inputs: placeholders that the caller passes, in order.
        outputs: nodes whose values the caller receives, in order.
        constants: values of the other placeholders; values of constant nodes are added.
        name: name of the network.
        apart: nodes that are computed elsewhere.
        checks: list that receives the checks of each call; computed indices become further outputs for them.
        output_names: names of the outputs; empty: the names of their values.
        stops_gradients: whether `detach` becomes a `stop_gradient`, for a graph that is differentiated.

    Raises:
        UnsupportedModelError: an operator, or one of its arguments, is not supported.
    """
    kinds = {node.name: tensor_type(node.meta["val"], node.name) for node in inputs}
    builder = GraphBuilder(name, kinds, output_names)
    context = AtenContext(
        builder, {name: name for name in kinds}, constants.arrays, OPSET, stops_gradients=stops_gradients
    )
    for node in graph.nodes:
        if node.op == "call_function" and node not in apart and not constants.learn(node):
            convert(context, node)
    ends = [context.value(node.name) for node in outputs]
    if checks is not None:
        checks += _make_checks(context, list(kinds), ends)
    return builder.finish(ends)


def _make_checks(context: AtenContext, inputs: Sequence[str], ends: list[str]) -> list[IndexCheck]:
    """Lists the checks of all indices; computed indices that are not outputs yet are appended to the outputs."""
    index_checks, builder = [], context.builder
    for value, inside in dict.fromkeys((_source(builder, value), inside) for value, inside in context.indices):
        given = value in inputs
        if not given and value not in ends:
            ends.append(value)
        index_checks.append(IndexCheck(given, (inputs if given else ends).index(value), inside))
    return index_checks


def _source(builder: GraphBuilder, value: str) -> str:
    """Traces a value back through reshapes, transpositions, broadcasts and lossless conversions."""
    node = builder.node(value)
    while node is not None and (node.op in ("reshape", "transpose", "broadcast_to") or _widens(builder, node)):
        value = node.inputs[0]
        node = builder.node(value)
    return value


def _widens(builder: GraphBuilder, node: GraphNode) -> bool:
    """Tells whether a node converts integers to a dtype that represents all of them."""
    kinds = [np.dtype(builder.type(name).dtype) for name in (node.inputs[0], node.name)] if node.op == "cast" else []
    return bool(kinds) and kinds[0].kind in "iu" and np.can_cast(kinds[0], kinds[1])


def refusals(graph: FxGraph, constants: ConstantValues) -> dict[Node, str]:
    """Lists the nodes that cannot be converted, each with the reason.

    Args:
        graph: graph of ATen operators.
        constants: values of placeholders; values of constant nodes are added.
    """
    reasons: dict[Node, str] = {}
    for node in graph.nodes:
        if node.op != "call_function" or constants.learn(node):
            continue
        if node.target is operator.getitem:
            why = reasons.get(_first(node), "")
        else:
            why = refusal(node, constants)
        if why:
            reasons[node] = why
    return reasons


def refusal(node: Node, constants: ConstantValues) -> str:
    """Returns the reason why a node cannot be converted, or ""; reads only the node and its inputs.

    Args:
        node: node of an FX graph.
        constants: values that depend on constants alone.
    """
    try:
        context = _around(node, constants)
        convert(context, node)
    except UnsupportedModelError as error:
        return str(error)
    return ""


def _around(node: Node, constants: ConstantValues) -> AtenContext:
    """Builds a context in which all inputs of a node that are not constant are inputs of the graph."""
    read = [given for given in node.all_input_nodes if given.name not in constants.arrays]
    kinds = {given.name: tensor_type(given.meta.get("val"), given.name) for given in read}
    return AtenContext(GraphBuilder("node", kinds), {name: name for name in kinds}, dict(constants.arrays), OPSET)


def convert(context: AtenContext, node: Node) -> None:
    """Adds the conversion of a node to the graph.

    Raises:
        UnsupportedModelError: the operator, or one of its arguments, is not supported.
    """
    if node.target is operator.getitem:
        number: Any = node.args[1]
        part = context.parts.get(_first(node).name, {}).get(number)
        if part is None:
            raise UnsupportedModelError(
                f"outputs that are read must be supported, but got number {number} of {_first(node).name!r}"
            )
        context.values[node.name] = part
        return
    name = operator_name(node.target)
    converter = CONVERTERS.get(name)
    if converter is None:
        title = f"aten.{name}" if isinstance(node.target, torch._ops.OpOverload) else name
        raise UnsupportedModelError(
            f"operators must have a conversion to kernels, but {title} of node {node.name!r} has none"
        )
    call = AtenCall.of(context, node)
    several = isinstance(node.meta["val"], (tuple, list))
    call.check_outputs()
    try:
        converted = converter(call)
    except GraphError as error:
        raise UnsupportedModelError(f"{call.op} node {call.title!r} cannot be converted: {error}") from None
    if isinstance(converted, str) and not several:
        context.values[node.name] = _check_result(call, converted, node.meta["val"])
        return
    values = [converted] if isinstance(converted, str) else list(converted)
    lacking = [i for i in range(len(node.meta["val"])) if call.reads(i) and (i >= len(values) or values[i] is None)]
    call.require(not lacking, "must not be asked for all outputs", f"{lacking} that are read")
    made = {i: _check_result(call, v, node.meta["val"][i]) for i, v in enumerate(values) if v is not None}
    context.parts[node.name] = made


def _check_result(call: AtenCall, value: str, expected: torch.Tensor) -> str:
    """Checks a value's shape and casts it to PyTorch's dtype: graphs compute 16-bit floats in float32."""
    kind = tensor_type(expected, call.title)
    found = call.context.builder.type(value)
    call.require(found.shape == kind.shape, f"must give {kind}", found)
    if found.dtype != kind.dtype:
        call.require(kind.dtype in NARROW, f"must give {kind}", found)
        return call.cast(value, kind.dtype)
    return value


def _first(node: Node) -> Node:
    found = node.args[0]
    assert isinstance(found, Node)
    return found


def _repeatable(node: Node) -> bool:
    target: Any = node.target
    return isinstance(target, torch._ops.OpOverload) and torch.Tag.nondeterministic_seeded not in target.tags


def _large(node: Node) -> bool:
    """Tells whether a value is too large to be computed at import; views have no elements of their own."""
    target: Any = node.target
    found = node.meta.get("val")
    values: Iterable[Any] = found if isinstance(found, (tuple, list)) else [found]
    if not all(isinstance(v, torch.Tensor) and all(isinstance(n, int) for n in v.shape) for v in values):
        return True
    return decide("large", node.name, not target.is_view and sum(v.numel() for v in values) > MOST_FOLDED)


def make_constant_values(tensors: Mapping[str, torch.Tensor]) -> ConstantValues:
    """Collects constants by the names of their placeholders."""
    return ConstantValues({name: array_from_tensor(tensor) for name, tensor in tensors.items()})
