"""FX graphs of ATen's operators, node by node; what depends on constants alone is computed at once by PyTorch."""

from __future__ import annotations

import operator
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch.fx import Graph as FxGraph
from torch.fx import Node

from autotune.graph.decisions import decided
from autotune.graph.errors import GraphError, ModelError
from autotune.graph.frontends.aten.registry import CONVERTERS, OPSET, AtenCall, AtenContext, name_of, tensor_type
from autotune.graph.frontends.aten.tensors import array_of, tensor_of
from autotune.graph.frontends.onnx.importer.nodes import MOST_FOLDED
from autotune.graph.ir import Array, Builder, Graph
from autotune.graph.ir import Node as GraphNode
from search_space.dtypes import NARROW


@dataclass(frozen=True)
class IndexCheck:
    """What must hold of the elements of a tensor.

    Attributes:
        given: whether it is an input, or else an output.
        place: among the inputs or outputs.
        inside: the values that they may have.
    """

    given: bool
    place: int
    inside: range


@dataclass
class Known:
    """Values of nodes that depend on constants alone.

    Attributes:
        arrays: node → its value.
        parts: node of several outputs → their values.
    """

    arrays: dict[str, Array] = field(default_factory=dict)
    parts: dict[str, Sequence[Any]] = field(default_factory=dict)

    def learn(self, node: Node) -> bool:
        """Computes a node, if it depends on constants alone and draws nothing; whether its value is known then."""
        if node.name in self.arrays or node.name in self.parts:
            return True
        if node.op != "call_function":
            return False
        if node.target is operator.getitem:
            return self._keep(node, self.parts.get(_first(node).name, {}))
        read = node.all_input_nodes
        if not all(given.name in self.arrays for given in read) or not _repeatable(node) or _large(node):
            return False

        def tensor(given: Node) -> torch.Tensor:
            array = self.arrays[given.name]
            repeated = node.target is torch.ops.aten.as_strided.default and 0 in array.strides
            return tensor_of(array.copy() if repeated else array)  # strides are those of memory that has every element

        args = torch.fx.map_arg(node.args, tensor)
        kwargs = torch.fx.map_arg(node.kwargs, tensor)
        target: Any = node.target
        with torch.no_grad():
            found = target(*args, **kwargs)
        if isinstance(found, torch.Tensor):
            self.arrays[node.name] = array_of(found)
        elif isinstance(found, (tuple, list)):
            self.parts[node.name] = found
        else:
            return False
        return True

    def _keep(self, node: Node, parts: Any) -> bool:
        place: Any = node.args[1]
        if not parts or not isinstance(parts[place], torch.Tensor):
            return False
        self.arrays[node.name] = array_of(parts[place])
        return True


def import_fx(
    graph: FxGraph,
    inputs: Sequence[Node],
    outputs: Sequence[Node],
    known: Known,
    name: str = "network",
    apart: Container[Node] = (),
    checks: list[IndexCheck] | None = None,
    output_names: Sequence[str] = (),
) -> Graph:
    """The graph that computes some nodes from others.

    Args:
        graph: of ATen's operators, whose nodes know the type of their value (`meta["val"]`).
        inputs: placeholders that a caller gives, in order.
        outputs: nodes of which a caller gets the value, in order.
        known: values of the other placeholders; learns more.
        name: of the network.
        apart: nodes that are computed elsewhere.
        checks: gets what is to be checked of each call. Indices that are computed become further outputs for that.
        output_names: what a caller knows the outputs by; none: the names of the values.

    Raises:
        ModelError: an operator that is not supported, or not with its arguments.
    """
    kinds = {node.name: tensor_type(node.meta["val"], node.name) for node in inputs}
    builder = Builder(name, kinds, output_names)
    context = AtenContext(builder, {name: name for name in kinds}, known.arrays, OPSET)
    for node in graph.nodes:
        if node.op == "call_function" and node not in apart and not known.learn(node):
            convert(context, node)
    ends = [context.value(node.name) for node in outputs]
    if checks is not None:
        checks += _checks_of(context, list(kinds), ends)
    return builder.finish(ends)


def _checks_of(context: AtenContext, inputs: Sequence[str], ends: list[str]) -> list[IndexCheck]:
    """Checks of all indices; those that are neither inputs nor outputs are appended to the outputs."""
    found, builder = [], context.builder
    for value, inside in dict.fromkeys((_source(builder, value), inside) for value, inside in context.indices):
        given = value in inputs
        if not given and value not in ends:
            ends.append(value)
        found.append(IndexCheck(given, (inputs if given else ends).index(value), inside))
    return found


def _source(builder: Builder, value: str) -> str:
    """The value whose elements are those of another one: in another shape or order, or in a narrower type."""
    node = builder.node(value)
    while node is not None and (node.op in ("reshape", "transpose", "broadcast_to") or _widens(builder, node)):
        value = node.inputs[0]
        node = builder.node(value)
    return value


def _widens(builder: Builder, node: GraphNode) -> bool:
    """Whether a node converts whole numbers to a type that has them all."""
    kinds = [np.dtype(builder.type(name).dtype) for name in (node.inputs[0], node.name)] if node.op == "cast" else []
    return bool(kinds) and kinds[0].kind in "iu" and np.can_cast(kinds[0], kinds[1])


def refusals(graph: FxGraph, known: Known) -> dict[Node, str]:
    """The nodes that cannot be converted, and why.

    Args:
        graph: of ATen's operators.
        known: values of placeholders; learns what depends on those alone.
    """
    found: dict[Node, str] = {}
    for node in graph.nodes:
        if node.op != "call_function" or known.learn(node):
            continue
        if node.target is operator.getitem:
            why = found.get(_first(node), "")
        else:
            why = refusal(node, known)
        if why:
            found[node] = why
    return found


def refusal(node: Node, known: Known) -> str:
    """Why a node cannot be converted; "" where it can. Looks at the node alone, and at what it reads.

    Args:
        node: of an FX graph.
        known: values that depend on constants alone.
    """
    try:
        context = _around(node, known)
        convert(context, node)
    except ModelError as error:
        return str(error)
    return ""


def _around(node: Node, known: Known) -> AtenContext:
    """A context in which everything that a node reads is an input, but for what is known."""
    read = [given for given in node.all_input_nodes if given.name not in known.arrays]
    kinds = {given.name: tensor_type(given.meta.get("val"), given.name) for given in read}
    return AtenContext(Builder("node", kinds), {name: name for name in kinds}, dict(known.arrays), OPSET)


def convert(context: AtenContext, node: Node) -> None:
    """Adds what a node computes.

    Raises:
        ModelError: an operator that is not supported, or not with these arguments.
    """
    if node.target is operator.getitem:
        place: Any = node.args[1]
        part = context.parts.get(_first(node).name, {}).get(place)
        if part is None:
            raise ModelError(
                f"outputs that are read must be supported, but got number {place} of {_first(node).name!r}"
            )
        context.values[node.name] = part
        return
    name = name_of(node.target)
    converter = CONVERTERS.get(name)
    if converter is None:
        title = f"aten.{name}" if isinstance(node.target, torch._ops.OpOverload) else name
        raise ModelError(f"operators must have a conversion to kernels, but {title} of node {node.name!r} has none")
    call = AtenCall.of(context, node)
    several = isinstance(node.meta["val"], (tuple, list))
    call.check_outputs()
    try:
        found = converter(call)
    except GraphError as error:
        raise ModelError(f"{call.op} node {call.title!r} cannot be converted: {error}") from None
    if isinstance(found, str) and not several:
        context.values[node.name] = _checked(call, found, node.meta["val"])
        return
    values = [found] if isinstance(found, str) else list(found)
    lacking = [i for i in range(len(node.meta["val"])) if call.reads(i) and (i >= len(values) or values[i] is None)]
    call.require(not lacking, "must not be asked for all outputs", f"{lacking} that are read")
    made = {i: _checked(call, v, node.meta["val"][i]) for i, v in enumerate(values) if v is not None}
    context.parts[node.name] = made


def _checked(call: AtenCall, value: str, wanted: torch.Tensor) -> str:
    """A value in the type that PyTorch gives it: graphs compute 16-bit floats in float32."""
    kind = tensor_type(wanted, call.title)
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
    """Whether a value has too many elements to be computed before the network runs; views have none of their own."""
    target: Any = node.target
    found = node.meta.get("val")
    values: Iterable[Any] = found if isinstance(found, (tuple, list)) else [found]
    if not all(isinstance(v, torch.Tensor) and all(isinstance(n, int) for n in v.shape) for v in values):
        return True
    return decided("large", node.name, not target.is_view and sum(v.numel() for v in values) > MOST_FOLDED)


def known_of(tensors: Mapping[str, torch.Tensor]) -> Known:
    """Constants, by the name of their placeholder."""
    return Known({name: array_of(tensor) for name, tensor in tensors.items()})
