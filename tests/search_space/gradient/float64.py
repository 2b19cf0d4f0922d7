"""Evaluation of tensor expressions by PyTorch in float64, through which autograd differentiates: the oracle."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from search_space import te
from search_space.gradient.replacing import list_placeholders
from search_space.ir.expr import FLOATS, Expr, walk

_BINARY: Mapping[str, Any] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "floordiv": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "mod": torch.remainder,
    "fmod": torch.fmod,
    "min": torch.minimum,
    "max": torch.maximum,
    "lt": torch.lt,
    "le": torch.le,
    "eq": torch.eq,
    "ne": torch.ne,
    "and": torch.logical_and,
    "or": torch.logical_or,
}
_FUNCTIONS: Mapping[str, Any] = {"rint": torch.round, "tfloat32": lambda x: x}
_REDUCERS: Mapping[str, Any] = {"sum": torch.sum, "max": torch.amax, "min": torch.amin}


def evaluate(outputs: Sequence[te.Tensor], values: Mapping[te.Operation, torch.Tensor]) -> list[torch.Tensor]:
    """Computes tensors from placeholders' values; floating-point ones in float64, each stage once."""
    computed = dict(values)

    def visit(op: te.Operation) -> torch.Tensor:
        if op not in computed:
            for tensor in op.inputs:
                visit(tensor.op)
            computed[op] = _stage(op, computed)
        return computed[op]

    return [visit(output.op) for output in outputs]


def _stage(op: te.Operation, values: Mapping[te.Operation, torch.Tensor]) -> torch.Tensor:
    axes = (*op.axis, *op.reduce_axis)
    grid = {
        axis.name: torch.arange(axis.extent).reshape([-1 if d == place else 1 for d in range(len(axes))])
        for place, axis in enumerate(axes)
    }
    assert op.body is not None
    nodes: dict[int, torch.Tensor] = {}
    for node in walk(op.body):
        nodes[node.serial] = _node(node, nodes, grid, values)
    value = nodes[op.body.serial].expand([axis.extent for axis in axes])
    within = tuple(range(len(op.axis), len(axes)))
    if op.reducer == "prod":
        return value.reshape(*op.shape, math.prod(a.extent for a in op.reduce_axis)).prod(-1)
    return value if op.reducer is None else _REDUCERS[op.reducer](value, dim=within)


def _node(node: Expr, nodes: Mapping[int, torch.Tensor], grid: Any, values: Any) -> torch.Tensor:
    operands = [nodes[e.serial] for e in node.operands]
    if node.op == "const":
        kind = torch.float64 if node.dtype in FLOATS else torch.bool if node.dtype == "bool" else torch.int64
        return torch.tensor(node.value, dtype=kind)
    if node.op == "var":
        return grid[node.args[0]]
    if node.op == "load":
        array = values[node.args[0].op]
        # Reads in a branch that is not taken may lie outside.
        inside = [index.clamp(0, extent - 1) for index, extent in zip(operands, array.shape, strict=True)]
        return array[tuple(torch.broadcast_tensors(*inside))]
    if node.op == "cast":
        return operands[0].to(torch.float64 if node.dtype in FLOATS else torch.int64)
    if node.op == "select":
        return torch.where(*operands)
    if node.op == "call":
        function = _FUNCTIONS.get(node.args[0]) or getattr(torch, node.args[0])
        return function(operands[0])
    return _BINARY[node.op](*operands)


def differentiate(
    output: te.Tensor, inputs: Sequence[te.Tensor], seed: torch.Tensor, values: Mapping[te.Operation, torch.Tensor]
) -> list[torch.Tensor]:
    """Differentiates by autograd."""
    leaves = {op: value.detach().requires_grad_(value.is_floating_point()) for op, value in values.items()}
    (result,) = evaluate([output], leaves)
    return list(torch.autograd.grad(result, [leaves[tensor.op] for tensor in inputs], seed))


def placeholders(tensor: te.Tensor) -> list[te.Tensor]:
    """Lists the placeholders that a tensor depends on."""
    return [te.Tensor(op) for op in list_placeholders(tensor)]
