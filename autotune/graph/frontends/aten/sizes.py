"""Graphs that PyTorch traced for any shape: at the sizes of a call each is a graph of known shapes.

Such a graph has sizes among its inputs, operations that compute with them, and fake tensors whose extents are symbols.
Given the inputs of one call, each node is computed once more with fake tensors of the sizes at hand: numbers take the
place of what computes them, and the other nodes know the shape of their value. What data alone decide, as how many
elements are not zero, stays a symbol.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    UnsupportedOperatorException,
)
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, ShapeEnv

SYMBOLS = (torch.SymInt, torch.SymFloat, torch.SymBool)
_CHECKS = ("aten._assert_scalar.default", "aten.sym_constrain_range.default")
"""Operators that only check a number: of one that is known, PyTorch's guards have."""
DEPENDS = (
    DataDependentOutputException,
    DynamicOutputShapeException,
    GuardOnDataDependentSymNode,
    UnsupportedOperatorException,
)
"""Raised by PyTorch where a shape, or which way a program goes, depends on elements of tensors."""


class UnknownShape(Exception):
    """A graph whose shapes do not follow from those of its inputs."""


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
            copied.name = node.name  # which a copy has not where it is a word of Python
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
    except DEPENDS as error:
        raise UnknownShape(
            f"shapes must follow from those of the inputs, but that of {node.name!r} depends on elements of tensors"
        ) from error


def _faked(value: Any, mode: FakeTensorMode) -> Any:
    return mode.from_tensor(value, static_shapes=True) if isinstance(value, torch.Tensor) else value


def _checked(node: Node, values: dict[Node, Any]) -> bool:
    """Tells whether a node only checks numbers that are known."""
    return str(node.target) in _CHECKS and not any(isinstance(values[read], SYMBOLS) for read in node.all_input_nodes)
