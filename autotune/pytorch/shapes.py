"""Graphs that Dynamo traced for any shape: at the sizes of a call each is a graph of known shapes.

Such a graph has sizes among its inputs, operations that compute with them, and fake tensors whose extents are symbols.
Given the inputs of one call, each node is computed once more with fake tensors of the sizes at hand: numbers take the
place of what computes them, and the other nodes know the shape of their value. What data alone decide, as how many
elements are not zero, stays a symbol.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, TypeVar

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    UnsupportedOperatorException,
)
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, ShapeEnv

_LOG = logging.getLogger(__name__)
_SYMBOLS = (torch.SymInt, torch.SymFloat, torch.SymBool)
_CHECKS = ("aten._assert_scalar.default", "aten.sym_constrain_range.default")
"""Operators that only check a number: of one that is known, Dynamo's guards have."""
_DEPENDS = (
    DataDependentOutputException,
    DynamicOutputShapeException,
    GuardOnDataDependentSymNode,
    UnsupportedOperatorException,
)

T = TypeVar("T")


class UnknownShape(Exception):
    """A graph whose shapes do not follow from those of its inputs."""


def sized(module: GraphModule) -> tuple[int, ...]:
    """Places of the inputs that decide the sizes of a graph: numbers, and tensors of any shape; () where none does."""
    placeholders = module.graph.find_nodes(op="placeholder")
    return tuple(place for place, node in enumerate(placeholders) if _open(node.meta.get("val")))


def sizes_of(inputs: Sequence[Any], places: Sequence[int]) -> Hashable:
    """What a graph is compiled for: the numbers among some inputs, and how the tensors among them lie in memory."""
    return tuple(
        (given.shape, given.stride()) if isinstance(given, torch.Tensor) else given
        for given in (inputs[place] for place in places)
    )


def specialised(module: GraphModule, inputs: Sequence[Any]) -> GraphModule:
    """A graph at the sizes of some inputs; it takes the same inputs and gives the same outputs.

    Args:
        module: stays as it is.
        inputs: of one call.

    Raises:
        UnknownShape: what an operator does depends on the elements of tensors.
    """
    mode = FakeTensorMode(shape_env=ShapeEnv())
    made, given = Graph(), iter(inputs)
    values: dict[Node, Any] = {}
    moved: dict[Node, Any] = {}
    with torch.no_grad(), mode:
        for node in module.graph.nodes:
            value = _value(node, given, values, module, mode)
            values[node] = value
            number = isinstance(value, (int, float, bool))
            if node.op == "call_function" and (number or _checked(node, values)):
                moved[node] = value
                continue
            copied = made.node_copy(node, moved.__getitem__)
            copied.meta["val"] = value
            moved[node] = value if number else copied
    return GraphModule(module, made)


def _value(node: Node, given: Any, values: dict[Node, Any], module: GraphModule, mode: FakeTensorMode) -> Any:
    if node.op == "placeholder":
        return _faked(next(given), mode)
    if node.op == "get_attr":
        return _faked(getattr(module, str(node.target)), mode)
    if node.op != "call_function":
        return None
    target: Any = node.target
    args = torch.fx.map_arg(node.args, values.__getitem__)
    kwargs = torch.fx.map_arg(node.kwargs, values.__getitem__)
    try:
        return target(*args, **kwargs)
    except _DEPENDS as error:
        raise UnknownShape(
            f"shapes must follow from those of the inputs, but that of {node.name!r} depends on elements of tensors"
        ) from error


def _faked(value: Any, mode: FakeTensorMode) -> Any:
    return mode.from_tensor(value, static_shapes=True) if isinstance(value, torch.Tensor) else value


def _open(value: Any) -> bool:
    """Whether a placeholder's value is a symbol, or a tensor whose extents or strides are."""
    found = (*value.shape, *value.stride()) if isinstance(value, torch.Tensor) else (value,)
    return any(isinstance(each, _SYMBOLS) for each in found)


def _checked(node: Node, values: dict[Node, Any]) -> bool:
    """Whether a node only checks numbers that are known."""
    return str(node.target) in _CHECKS and not any(isinstance(values[read], _SYMBOLS) for read in node.all_input_nodes)


class Recent(Generic[T]):
    """What was made for the keys that were asked for last; threads may ask at the same time.

    Args:
        most: how many are kept.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._found: OrderedDict[Hashable, T] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, key: Hashable, make: Callable[[], T]) -> T:
        """What belongs to a key; `make`, which must be quick, makes it where it is not there."""
        with self._lock:
            found = self._found.get(key)
            if found is None:
                if len(self._found) == self._most:
                    self._found.popitem(last=False)
                    _LOG.warning(
                        "a graph of any shape has come in more than %d shapes (option `shapes`): the one that was used "
                        "least recently is dropped, and compiled anew where it comes again",
                        self._most,
                    )
                found = self._found[key] = make()
            self._found.move_to_end(key)
            return found
