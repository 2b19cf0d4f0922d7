"""FX graphs as plain data for JSON, and graphs of ATen's operators made of such data again.

Objects that are not plain, such as a user's function, are refused: a name must mean one thing in every process.
"""

from __future__ import annotations

import base64
import builtins
import importlib
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
from torch.fx import Graph, GraphModule, Node
from torch.fx._lazy_graph_module import _LazyGraphModule
from torch.fx.node import _get_qualified_name

from autotune.graph.frontends.aten.tensors import dtype_name

LARGEST_CONSTANT = 1 << 16
"""Bytes of a tensor that a graph holds itself, above which it is not plain."""
_NAMESPACES = ("aten", "prims")
_LIBRARIES = ("torch", "_operator", "operator", "math")
"""Modules whose functions are the same wherever the version of PyTorch is."""
_GETITEM = "getitem"


class NotPlain(Exception):
    """A graph that is not plain data."""


# ------------------------------------------------------------------ to data
def plain_nodes(graph: Graph, target: Callable[[Node], str]) -> list[Any]:
    """Lists nodes in order: operation, target, arguments.

    Args:
        graph: graph of FX.
        target: node → name of its target.

    Raises:
        NotPlain: an argument that is neither a number, a text, a node nor a sequence of these, or a word of PyTorch's.
    """
    numbers = {node: number for number, node in enumerate(graph.nodes)}
    return [
        [node.op, target(node), [_plain(value, numbers) for value in node.args], _plain(dict(node.kwargs), numbers)]
        for node in graph.nodes
    ]


def function_name(target: Any) -> str:
    """Returns the name of a function of PyTorch or Python.

    Raises:
        NotPlain: a function of another library, or one that is not found under its name.
    """
    if isinstance(target, torch._ops.OpOverload):
        return operator_name(target)
    if not callable(target) or isinstance(target, (torch._ops.OpOverloadPacket, torch._ops.HigherOrderOperator)):
        raise NotPlain(f"functions must be PyTorch's, but got {target}")
    name = _get_qualified_name(target)
    module, *rest = name.split(".")
    if not rest and getattr(builtins, name, None) is target:
        return name
    found: Any = importlib.import_module(module) if module in _LIBRARIES else None
    for part in rest:
        found = getattr(found, part, None)
    if found is not target:
        raise NotPlain(f"functions must be PyTorch's, but got {name}")
    return name


def operator_name(target: Any) -> str:
    """Returns the name of an operator of ATen, or of `operator.getitem`.

    Raises:
        NotPlain: any other target.
    """
    if target is operator.getitem:
        return _GETITEM
    if not isinstance(target, torch._ops.OpOverload) or target.namespace not in _NAMESPACES:
        raise NotPlain(f"operators must be ATen's, but got {target}")
    return str(target)


def tensor_kind(value: Any) -> list[Any]:
    """Describes a tensor without its elements: dtype, shape and strides.

    Raises:
        NotPlain: no dense tensor of known extents on the CPU.
    """
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided or value.device.type != "cpu":
        raise NotPlain(f"tensors must be dense and on the CPU, but got {type(value).__name__}")
    extents = [*value.shape, *value.stride()]
    if value.is_quantized or value.is_conj() or value.is_neg() or any(type(extent) is not int for extent in extents):
        raise NotPlain("tensors must be of known extents and neither quantised nor conjugated, but one is not")
    return [dtype_name(value.dtype), list(value.shape), list(value.stride())]


def aten_data(module: GraphModule) -> dict[str, Any]:
    """Converts a graph of ATen's operators to plain data; `aten_module` makes it again.

    Raises:
        NotPlain: it is not.
    """

    def target(node: Node) -> str:
        return operator_name(node.target) if node.op == "call_function" else str(node.target)

    attributes = {str(node.target) for node in module.graph.find_nodes(op="get_attr")}
    return {
        "nodes": plain_nodes(module.graph, target),
        "names": [node.name for node in module.graph.nodes],
        "values": [_value(node.meta.get("val")) for node in module.graph.nodes],
        "held": {name: _plain_tensor(getattr(module, name, None)) for name in sorted(attributes)},
    }


def _value(value: Any) -> Any:
    """Describes a node's value: a tensor, several tensors, or None."""
    if value is None:
        return None
    if isinstance(value, (tuple, list)):
        return {"several": [_value(each) for each in value]}
    return tensor_kind(value)


def _plain_tensor(value: Any) -> list[Any]:
    kind = tensor_kind(value)
    if type(value) is not torch.Tensor or value.nbytes > LARGEST_CONSTANT:
        raise NotPlain(f"tensors of a graph must have at most {LARGEST_CONSTANT} bytes, but one has {value.nbytes}")
    with unset_fake_temporarily():  # AOTAutograd hands graphs over while tensors are fake
        data = value.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return [*kind, base64.b64encode(data).decode()]


def _plain(value: Any, numbers: Mapping[Node, int]) -> Any:
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, Node):
        return {"node": numbers[value]}
    if isinstance(value, (tuple, list)):
        return {type_name(value): [_plain(each, numbers) for each in value]}
    if isinstance(value, slice):
        return {"slice": [_plain(each, numbers) for each in (value.start, value.stop, value.step)]}
    if isinstance(value, dict) and all(type(key) is str for key in value):
        return {"dict": [[key, _plain(each, numbers)] for key, each in value.items()]}
    if value is Ellipsis:
        return {"ellipsis": []}
    for kind in (torch.dtype, torch.layout, torch.memory_format, torch.device):
        if isinstance(value, kind):
            return {kind.__name__: str(value).removeprefix("torch.")}
    raise NotPlain(f"arguments must be plain, but got {type(value).__name__}")


def type_name(value: Sequence[Any]) -> str:
    """Returns `tuple` or `list`; FX and PyTorch have subclasses of both."""
    return "tuple" if isinstance(value, tuple) else "list"


# ------------------------------------------------------------------ from data
def aten_module(data: Mapping[str, Any]) -> GraphModule:
    """Makes the graph from data of `aten_data`: names, arguments and types of all values are the same.

    Its `forward` is written when it is first called.
    """
    attributes = {name: _tensor(*facts) for name, facts in data["held"].items()}
    graph, values = Graph(), _Values()
    nodes: list[Node] = []
    for (op, target, args, kwargs), name, value in zip(data["nodes"], data["names"], data["values"], strict=True):
        target = _operator(target) if op == "call_function" else target
        given = tuple(_read_argument(each, nodes) for each in args)
        node = graph.create_node(op, target, given, _read_argument(kwargs, nodes), name)
        assert node.name == name, f"{node.name} must be called {name}"
        if op != "output":
            node.meta["val"] = values.of(value)
        nodes.append(node)
    return _LazyGraphModule(attributes, graph)


def _tensor(dtype: str, shape: Sequence[int], strides: Sequence[int], data: str) -> torch.Tensor:
    found = torch.empty_strided(shape, strides, dtype=getattr(torch, dtype))
    if found.numel():  # of no bytes there is no tensor
        found.copy_(torch.frombuffer(bytearray(base64.b64decode(data)), dtype=found.dtype).reshape(shape))
    return found


def _operator(name: str) -> Any:
    if name == _GETITEM:
        return operator.getitem
    namespace, packet, overload = name.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), packet), overload)


def _read_argument(value: Any, nodes: Sequence[Node]) -> Any:
    if isinstance(value, dict):
        ((kind, what),) = value.items()
        return _WORDS[kind](what) if kind in _WORDS else _COMPOSITES[kind](what, nodes)
    return value


_WORDS: Mapping[str, Callable[[Any], Any]] = {
    "dtype": lambda name: getattr(torch, name),
    "layout": lambda name: getattr(torch, name),
    "memory_format": lambda name: getattr(torch, name),
    "device": torch.device,
    "ellipsis": lambda _: Ellipsis,
}
_COMPOSITES: Mapping[str, Callable[[Any, Sequence[Node]], Any]] = {
    "node": lambda number, nodes: nodes[number],
    "list": lambda what, nodes: [_read_argument(each, nodes) for each in what],
    "tuple": lambda what, nodes: tuple(_read_argument(each, nodes) for each in what),
    "slice": lambda what, nodes: slice(*(_read_argument(each, nodes) for each in what)),
    "dict": lambda what, nodes: {key: _read_argument(each, nodes) for key, each in what},
}


class _Values:
    """Tensors without elements that represent the values of nodes; tensors of one kind are one object."""

    def __init__(self) -> None:
        self._mode = FakeTensorMode()
        self._numbers: dict[Any, Any] = {}

    def of(self, facts: Any) -> Any:
        """Makes the value that `_value` described."""
        if facts is None:
            return None
        if isinstance(facts, dict):
            return tuple(self.of(each) for each in facts["several"])
        dtype, shape, strides = facts
        key = (dtype, tuple(shape), tuple(strides))
        if key not in self._numbers:
            with self._mode:
                self._numbers[key] = torch.empty_strided(shape, strides, dtype=getattr(torch, dtype))
        return self._numbers[key]
