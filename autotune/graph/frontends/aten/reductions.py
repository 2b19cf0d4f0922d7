"""Reductions over axes, running sums, and the indices of extrema."""

from __future__ import annotations

import math

import numpy as np

from autotune.graph.frontends.aten.registry import AtenCall, converts
from autotune.graph.frontends.onnx.importer import layers, reductions
from autotune.graph.frontends.onnx.importer.activations import with_number
from autotune.graph.frontends.onnx.importer.reductions import moments, reduce_over
from search_space.dtypes import FLOATS
from search_space.ir.expr import BOOL

_REDUCERS = {
    **{f"sum.{kind}": "sum" for kind in ("default", "dim_IntList")},
    **{f"mean.{kind}": "mean" for kind in ("default", "dim")},
    **{f"prod.{kind}": "prod" for kind in ("default", "dim_int")},
    **{f"{name}.default": name[-3:] for name in ("amax", "amin", "max", "min")},
}


def _axes(call: AtenCall) -> tuple[int, ...]:
    return call.axes() if "dim" in call.arguments else tuple(range(len(call.type(0).shape)))


@converts(*_REDUCERS)
def reduce(call: AtenCall) -> str:
    """Reduces over some axes, or all."""
    rank, axes = len(call.type(0).shape), _axes(call)
    if call.op == "mean.dim" and rank == 4 and axes == (2, 3) and call["dtype"] is None:
        out = layers.global_pool(call.shared("GlobalAveragePool", call.inputs[:1]))  # makes images channels-last
        return call.reshape(out, call.result.shape)
    truths = call.type(0).dtype == BOOL and call.compute_dtype == "int64"  # their count fits 32 bits
    value = call.operand(0, "int32" if truths else call.compute_dtype)
    out = reduce_over(call, value, axes, _REDUCERS[call.op], bool(call.arguments.get("keepdim", False)))
    return call.cast(out, "int64") if truths else out


@converts("any.default", "any.dim", "any.dims", "all.default", "all.dim", "all.dims")
def truths(call: AtenCall) -> str:
    """Tells whether any, or all, elements are true."""
    value = call.cast(call.operand(0, BOOL), "int32")
    reducer = "max" if call.op.startswith("any") else "min"
    return call.cast(reduce_over(call, value, _axes(call), reducer, bool(call.arguments.get("keepdim", False))), BOOL)


@converts("max.dim", "min.dim")
def extreme_with_place(call: AtenCall) -> list[str | None]:
    """Computes the extremum along an axis, and its index if that is read."""
    value, op = call.operand(0, call.compute_dtype), call.op.partition(".")[0]
    keep, axis = bool(call["keepdim"]), call.axis()
    out = reduce_over(call, value, (axis,), op, keep)
    place = _extreme_index(call, f"Arg{op.capitalize()}", axis, keep) if call.reads(1) else None
    return [out, place]


@converts("argmax.default", "argmin.default")
def place_of_extreme(call: AtenCall) -> str:
    """Computes the index of the first maximum or minimum along an axis."""
    call.require(call["dim"] is not None, "must name an axis", "dim=None")
    return _extreme_index(call, f"Arg{call.op[3:6].capitalize()}", call.axis(), bool(call["keepdim"]))


def _extreme_index(call: AtenCall, op: str, axis: int, keep: bool) -> str:
    return reductions.place_of_extreme(call.shared(op, call.inputs[:1], axis=axis, keepdims=int(keep)))


@converts("var.correction", "var_mean.correction", "std.correction", "std_mean.correction")
def variance(call: AtenCall) -> str | list[str | None]:
    """Computes the mean squared difference from the mean, times n / (n - correction), or its root."""
    value, axes = call.operand(0, call.compute_dtype), _axes(call)
    call.require(call.compute_dtype in FLOATS, "must reduce floating-point values", call.result)
    count = math.prod(call.shape(value)[a] for a in axes)
    correction = 1 if call["correction"] is None else call["correction"]
    call.require(count > correction, "must have more elements than `correction`", f"{count} elements")
    mean, out = moments(call, value, axes)
    out = call.reshape(out, call.result.shape)
    if correction:
        out = with_number(call, "multiply", out, count / (count - correction))
    out = call.add("sqrt", [out]) if call.op.startswith("std") else out
    if "mean" not in call.op:
        return out
    final = tuple(call.node.meta["val"][1].shape)
    return [out, call.reshape(mean, final)]


@converts("linalg_vector_norm.default")
def norm(call: AtenCall) -> str:
    """Computes vector norms of order 1, 2 or infinity."""
    value, order, keep = call.operand(0, call.compute_dtype), call["ord"], bool(call["keepdim"])
    call.require(order in (1, 2, math.inf), "must be of order 1, 2 or infinity", f"ord={order}")
    if order == 2:
        squares = reduce_over(call, call.add("multiply", [value, value]), _axes(call), "sum", keep)
        return call.add("sqrt", [squares])
    return reduce_over(call, call.add("abs", [value]), _axes(call), "sum" if order == 1 else "max", keep)


@converts("logsumexp.default")
def log_sum_exp(call: AtenCall) -> str:
    """Computes the logarithm of the sum of exponentials."""
    axes = f"{call.title}_axes"
    call.context.arrays[axes] = np.array(call.axes(), np.int64)
    return reductions.reduce(call.shared("ReduceLogSumExp", [call.inputs[0], axes], keepdims=int(call["keepdim"])))


@converts("cumsum.default")
def running_sum(call: AtenCall) -> str:
    """Computes running sums along an axis."""
    name = f"{call.title}_axis"
    call.context.arrays[name] = np.array(call.axis(), np.int64)
    if call.type(0).dtype not in (call.result.dtype, call.compute_dtype):
        return call.add("cumsum", [call.operand(0, call.compute_dtype)], axis=call.axis())
    return reductions.running_sum(call.shared("CumSum", [call.inputs[0], name]))
