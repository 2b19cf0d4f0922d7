"""Specialisation of graphs that PyTorch traced for open shapes to the sizes of a call.

Such a graph has sizes among its inputs, operations on them, and fake tensors with symbolic extents. Given the inputs of
one call, each node is evaluated again with fake tensors of these sizes. Numbers replace operations on sizes, and the
other nodes get static shapes. Extents that depend on data, such as the number of nonzero elements, stay symbols.
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
"""Operators that only check a number; for static numbers, PyTorch's guards have checked it already."""
DEPENDS = (
    DataDependentOutputException,
    DynamicOutputShapeException,
    GuardOnDataDependentSymNode,
    UnsupportedOperatorException,
)
"""Errors of PyTorch if a shape, or the control flow, depends on elements of tensors."""


class UnknownShape(Exception):
    """A graph whose shapes do not follow from those of its inputs."""


def specialise(module: GraphModule, inputs: Sequence[Any]) -> GraphModule:
    """Specialises a graph to the sizes of some inputs; its inputs and outputs stay the same.

    Args:
        module: graph, not modified.
        inputs: inputs of one call.

    Raises:
        UnknownShape: an operator's shapes depend on elements of tensors.
    """
    mode = FakeTensorMode(shape_env=ShapeEnv())
    graph, remaining = Graph(), iter(inputs)
    values: dict[Node, Any] = {}
    moved: dict[Node, Any] = {}
    with torch.no_grad(), mode:
        for node in module.graph.nodes:
            value = _value(node, remaining, values, module, mode)
            values[node] = value
            number = isinstance(value, (int, float, bool))
            if node.op == "call_function" and (number or _is_check(node, values)):
                moved[node] = value
                continue
            copied = graph.node_copy(node, moved.__getitem__)
            copied.name = node.name  # node_copy changes names that are Python keywords
            copied.meta["val"] = value
            moved[node] = value if number else copied
    return GraphModule(module, graph)


def _value(node: Node, remaining: Any, values: dict[Node, Any], module: GraphModule, mode: FakeTensorMode) -> Any:
    if node.op == "placeholder":
        return _make_fake(next(remaining), mode)
    if node.op == "get_attr":
        return _make_fake(getattr(module, str(node.target)), mode)
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


def _make_fake(value: Any, mode: FakeTensorMode) -> Any:
    return mode.from_tensor(value, static_shapes=True) if isinstance(value, torch.Tensor) else value


def _is_check(node: Node, values: dict[Node, Any]) -> bool:
    """Tells whether a node only checks static numbers."""
    return str(node.target) in _CHECKS and not any(isinstance(values[read], SYMBOLS) for read in node.all_input_nodes)
