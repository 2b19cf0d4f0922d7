"""Derivatives of operations: the share that an input's gradient has from one node, derived from its expression.

A node of these operations names the operation that it differentiates, the input, and the values that it reads: inputs
of the operation, its output, and the gradient of the output (the seed), in this order. A value in 16 bits may stand in
for one in float32: it is widened as it is read. Operations on elements give elements of the output's shape, which are
not summed where the input was broadcast.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

import numpy as np

from autotune.graph.ops.base import (
    GraphOp,
    Kind,
    Tensors,
    Types,
    at,
    broadcast,
    exactly,
    find,
    freeze,
    register,
    widen_types,
)
from autotune.graph.ops.elementwise import elementwise
from autotune.graph.types import Array, Attributes, TensorType
from search_space import te
from search_space.dtypes import FLOATS
from search_space.gradient.derivatives import differentiate
from search_space.gradient.replacing import list_placeholders, replace_loads, replace_stages
from search_space.ir.expr import Expr, const, select, substitute
from search_space.tensor import Tensor

Slots = tuple[int, ...]
"""Values that a node reads: numbers of inputs, then of the output and of the seed, which follow the inputs."""
Description = tuple[str, tuple[tuple[str, Any], ...], tuple[tuple[tuple[int, ...], str], ...], int]
"""Operation, its attributes, shapes and dtypes of its inputs, and the number of the input.

Operations on elements have inputs of one element here: they are the same for all shapes.
"""


def describe(op: str, attrs: Attributes, types: Types, wrt: int) -> dict[str, Any] | None:
    """Returns the attributes of the derivative of an operation by an input; None if it is zero everywhere.

    Raises:
        ValueError: the operation has no gradient.
    """
    by_element = find(op).kind is Kind.elementwise
    kinds = tuple(((1,) if by_element else kind.shape, kind.dtype) for kind in types)
    description = op, tuple(attrs.items()), kinds, wrt
    if types[wrt].dtype not in FLOATS:
        return None
    made = _make(description)
    if made is None:
        return None
    tensor, sources = made
    read = set(list_placeholders(tensor))
    reads = tuple(slot for slot, source in enumerate(sources) if source.op in read)
    return {"operation": op, "arguments": description[1], "types": description[2], "wrt": wrt, "reads": reads}


def derivative_op(op: str) -> str:
    """Returns the name of the operation that differentiates another one."""
    return "derivative" if find(op).kind is Kind.elementwise else "gradient"


@lru_cache(1024)
def _make(description: Description) -> tuple[te.Tensor, tuple[te.Tensor, ...]] | None:
    """Makes a derivative, and what it may read: inputs, output, seed; None if it is zero everywhere.

    Raises:
        ValueError: the operation has no gradient.
    """
    name, items, kinds, wrt = description
    operation, attrs = find(name), dict(items)
    *inputs, output = operation.tensors_to_differentiate(attrs, [TensorType(*kind) for kind in kinds], wrt)
    output_value, seed = (te.placeholder(output.shape, output.dtype, each) for each in ("value", "seed"))
    sources = *inputs, output_value, seed
    if operation.kind is Kind.elementwise:
        tensor = _differentiate_elements(output, inputs[wrt], output_value, seed)
        return None if tensor is None else (tensor, sources)
    (tensor,) = te.gradient(output, [inputs[wrt]], seed)
    return replace_stages(tensor, {output.op: output_value}), sources


def _differentiate_elements(output: Tensor, source: Tensor, value: Tensor, seed: Tensor) -> Tensor | None:
    """Differentiates each element by the element of an input that it reads."""
    body = output.op.body
    assert body is not None and output.op.reducer is None
    point = tuple(axis.expr for axis in output.op.axis)
    parts: list[Expr] = []
    for read in differentiate(body, seed[point], value[point] if body.op in ("call", "div", "fmod") else None):
        if read.load.args[0].op is not source.op:
            continue
        for guards, term in read.terms.items():
            for guard in reversed(guards):
                term = select(guard, term, const(0.0, term.dtype))
            parts.append(term)
    if not parts or all(part.is_const for part in parts):
        return None
    total = parts[0]
    for part in parts[1:]:
        total = total + part

    def element(*indices: te.IterVar) -> Expr:
        return substitute(total, {axis.name: index.expr for axis, index in zip(output.op.axis, indices, strict=True)})

    return te.compute(output.shape, element, name=f"d_{source.name}")


def _attributes(attributes: Attributes, types: Types) -> dict[str, Any]:
    attrs = {name: freeze(attributes[name]) for name in ("operation", "arguments", "types", "wrt", "reads")}
    inputs = [TensorType(*kind) for kind in attrs["types"]]
    result = find(attrs["operation"]).infer(dict(attrs["arguments"]), inputs)
    slots = [*inputs, result, result]
    wanted = [slots[slot] for slot in attrs["reads"]]
    if find(attrs["operation"]).kind is Kind.elementwise:
        wanted = [TensorType(kind.shape, slot.dtype) for kind, slot in zip(types, wanted, strict=True)]
    widened = widen_types(types)
    if len(types) != len(wanted) or any(kind not in pair for kind, *pair in zip(wanted, types, widened, strict=True)):
        raise ValueError(f"inputs must be {', '.join(map(str, wanted))}, but got {', '.join(map(str, types))}")
    return attrs


def _define(attrs: Attributes, tensors: Tensors) -> te.Tensor:
    made = _make((attrs["operation"], attrs["arguments"], attrs["types"], attrs["wrt"]))
    assert made is not None, attrs
    tensor, sources = made
    values = {sources[slot].op: value for slot, value in zip(attrs["reads"], tensors, strict=True)}
    if find(attrs["operation"]).kind is not Kind.elementwise:
        return replace_stages(tensor, values)
    shape = broadcast([TensorType(value.shape, value.dtype) for value in tensors])
    body = tensor.op.body
    assert body is not None

    def element(*indices: te.IterVar) -> Expr:
        return replace_loads(body, {op: partial(_read, value, indices) for op, value in values.items()})

    return te.compute(shape, element, name=tensor.name)


def _read(value: te.Tensor, indices: tuple[te.IterVar, ...], at_element: tuple[Expr, ...]) -> Expr:
    """Reads the element of a broadcast value that takes part in an element of the output."""
    element: Expr = at(value, indices)
    return element


def _scatter_attributes(attributes: Attributes, types: Types) -> dict[str, Any]:
    slope, indices = types
    if indices.dtype not in ("int32", "int64") or slope.shape[: len(indices.shape)] != indices.shape:
        raise ValueError(f"slopes must have a row for each index, but got {slope} and {indices}")
    return {"rows": int(attributes["rows"])}


def _scatter_sum(attrs: Attributes, tensors: Tensors) -> te.Tensor:
    """Sums the rows of slopes (indices..., row...) with the same index, into a table (rows, row...).

    Negative indices count from the end, others are limited to the table, as `gather` reads it.
    """
    slope, indices = tensors
    rows, rank = attrs["rows"], len(indices.shape)
    axes = [te.reduce_axis((0, extent), f"n{place}") for place, extent in enumerate(indices.shape)]

    def body(row: te.IterVar, *inner: te.IterVar) -> te.Reduction:
        index = indices[tuple(axes)].astype("int64")
        index = te.if_then_else(index < 0, index + rows, index)
        index = te.minimum(te.maximum(index, 0), rows - 1)
        return te.sum(te.if_then_else(te.eq(index, row.expr), slope[(*axes, *inner)], 0.0), axis=axes)

    return te.compute((rows, *slope.shape[rank:]), body, name="scatter_sum")


def _limited_slope(attrs: Attributes, slope: Expr, value: Expr) -> Expr:
    """Returns the slope where a value is between limits or NaN, and 0 at the limits and beyond; None is no limit."""
    zero, out = const(0.0, slope.dtype), slope
    if attrs["high"] is not None:
        out = te.if_then_else(value >= attrs["high"], zero, out)
    return out if attrs["low"] is None else te.if_then_else(value <= attrs["low"], zero, out)


def _compute_limited_slope(attrs: Attributes, slope: Array, value: Array) -> Array:
    outside = np.zeros(value.shape, bool)
    if attrs["high"] is not None:
        outside |= value >= attrs["high"]
    if attrs["low"] is not None:
        outside |= value <= attrs["low"]
    return np.where(outside, slope.dtype.type(0), slope)


register(
    elementwise("limited_slope", _limited_slope, _compute_limited_slope, exactly(low=None, high=None)),
    GraphOp("derivative", Kind.elementwise, _attributes, _define),
    GraphOp("gradient", Kind.compute, _attributes, _define),
    GraphOp("scatter_sum", Kind.compute, _scatter_attributes, _scatter_sum),
)
