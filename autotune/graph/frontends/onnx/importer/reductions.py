"""Reductions over axes, running sums, and indices of extrema."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from ml_dtypes import finfo

from autotune.graph.calls import Call
from autotune.graph.frontends.onnx.importer.activations import with_number
from autotune.graph.frontends.onnx.importer.registry import imports
from autotune.graph.frontends.onnx.importer.selection import nan_in
from search_space.ir.expr import FLOATS

_REDUCERS = {
    "ReduceSum": "sum",
    "ReduceMean": "mean",
    "ReduceMax": "max",
    "ReduceMin": "min",
    "ReduceProd": "prod",
    "ReduceL1": "sum",
    "ReduceL2": "sum",
    "ReduceSumSquare": "sum",
    "ReduceLogSum": "sum",
    "ReduceLogSumExp": "sum",
}


def reduce_over(call: Call, value: str, axes: Sequence[int], reducer: str, keep: bool) -> str:
    """Reduces all, some or no axes, which stay with extent 1 if `keep`."""
    if not axes:
        return value
    dtype = call.context.builder.type(value).dtype
    if reducer in ("max", "min") and dtype in ("bool", "int8", "uint8"):
        return call.cast(reduce_over(call, call.cast(value, "int32"), axes, reducer, keep), dtype)
    shape = call.shape(value)
    final = tuple(1 if a in axes else n for a, n in enumerate(shape) if keep or a not in axes)
    if len(axes) == len(shape):  # the operation `reduce` leaves at least one axis
        value, axes = call.add("reshape", [value], shape=(1, math.prod(shape))), (1,)
    out = call.add("reduce", [value], axes=tuple(axes), reducer=reducer)
    return call.reshape(out, final)


def moments(call: Call, value: str, axes: Sequence[int]) -> tuple[str, str]:
    """Computes mean and variance, the mean squared difference, of floats over some axes, which stay with extent 1.

    The mean uses differences from the first element: for equal elements it is exact, and the variance is 0.
    """
    mean = reduce_over(call, value, axes, "pivoted_mean", True)
    centred = call.add("subtract", [value, mean])
    return mean, reduce_over(call, call.add("multiply", [centred, centred]), axes, "mean", True)


@imports(*_REDUCERS)
def reduce(call: Call) -> str:
    """Reduces over axes from an attribute or a constant; without axes, over all or none."""
    value = call.value(0)
    shape = call.shape(value)
    axes = tuple(sorted(a % len(shape) for a in call.ints("axes", 1) or ()))
    if not axes and not call.attrs.get("noop_with_empty_axes", 0):
        axes = tuple(range(len(shape)))
    keep, reducer = bool(call.attrs.get("keepdims", 1)), _REDUCERS[call.op]
    dtype = call.type(0).dtype
    if call.op == "ReduceLogSumExp":  # subtracts the maximum, so that nothing overflows
        call.require(dtype in FLOATS, "must reduce floating-point values", dtype)
        # Differences of infinities are NaN.
        limit = float(finfo(dtype).max)  # type: ignore[no-untyped-call]
        largest = call.add("clip", [reduce_over(call, value, axes, "max", True)], low=-limit, high=limit)
        small = call.add("exp", [call.add("subtract", [value, largest])])
        out = call.add("add", [call.add("log", [reduce_over(call, small, axes, "sum", True)]), largest])
        final = tuple(n for a, n in enumerate(shape) if a not in axes)
        return out if keep else call.add("reshape", [out], shape=final)
    if call.op == "ReduceL1":
        value = call.add("abs", [value])
    if call.op in ("ReduceL2", "ReduceSumSquare"):
        value = call.add("multiply", [value, value])
    out = reduce_over(call, value, axes, reducer, keep)
    if call.op in ("ReduceL2", "ReduceLogSum"):
        out = call.add("sqrt" if call.op == "ReduceL2" else "log", [out])
    return out


def first_extreme(call: Call, value: str, axis: int, reducer: str, last: bool = False) -> str:
    """Computes the index (int32) of the first, or last, extremum along an axis, which stays with extent 1.

    NaN counts as the extremum of both kinds.
    """
    shape = call.shape(value)
    extreme = reduce_over(call, value, (axis,), reducer, True)
    indices = np.arange(shape[axis], dtype=np.int32).reshape([-1 if a == axis else 1 for a in range(len(shape))])
    other = call.constant(np.full((1,), -1 if last else shape[axis], np.int32))
    hit = call.add("equal", [value, extreme])
    if call.context.builder.type(value).dtype in FLOATS:
        hit = call.add("logical_or", [hit, nan_in(call, value)])
    chosen = call.add("where", [hit, call.constant(indices), other])
    return reduce_over(call, chosen, (axis,), "max" if last else "min", True)


@imports("ArgMax", "ArgMin")
def place_of_extreme(call: Call) -> str:
    """Computes the index of the first or last extremum along an axis, as int64."""
    value = call.value(0)
    shape = call.shape(value)
    axis, keep = int(call.attrs.get("axis", 0)) % len(shape), bool(call.attrs.get("keepdims", 1))
    reducer, last = "max" if call.op == "ArgMax" else "min", bool(call.attrs.get("select_last_index", 0))
    out = first_extreme(call, value, axis, reducer, last)
    out = out if keep else call.add("reshape", [out], shape=(*shape[:axis], *shape[axis + 1 :]))
    return call.add("cast", [out], dtype="int64")


@imports("Mean")
def mean(call: Call) -> str:
    """Computes the mean of any number of operands."""
    out = call.value(0)
    for place in range(1, len(call.inputs)):
        out = call.add("add", [out, call.value(place)])
    return with_number(call, "multiply", out, 1 / len(call.inputs)) if len(call.inputs) > 1 else out


LONGEST_SCAN = 256
"""Maximum extent whose running sums are computed for each element separately: longer axes are cut into parts."""


@imports("CumSum")
def running_sum(call: Call) -> str:
    """Computes running sums along a constant axis."""
    value, rank = call.value(0), len(call.type(0).shape)
    axis = int(call.require_array(1, "axis").reshape(-1)[0])
    call.require(-rank <= axis < rank, f"must have an axis of {rank}", f"axis={axis}")
    flags = {name: bool(call.attrs.get(name, 0)) for name in ("exclusive", "reverse")}
    return _scan(call, value, axis % rank, **flags)


def _scan(call: Call, value: str, axis: int, exclusive: bool, reverse: bool) -> str:
    """Computes running sums; for a long axis, sums within parts plus the totals of earlier parts."""
    shape = call.shape(value)
    extent, rank = shape[axis], len(shape)
    if extent <= LONGEST_SCAN:
        return call.add("cumsum", [value], axis=axis, exclusive=exclusive, reverse=reverse)

    def at(index: int) -> tuple[int, ...]:
        return tuple(index if a == axis else 0 for a in range(rank))

    width = min(LONGEST_SCAN, math.isqrt(extent - 1) + 1)
    parts = math.ceil(extent / width)
    more = parts * width - extent
    around = [int(exclusive), more]  # exclusive sums are inclusive sums shifted by one
    if any(around):
        before, after = reversed(around) if reverse else around
        value = call.add("pad", [value], before=at(before), after=at(after))
    if exclusive:
        value = call.add(
            "slice", [value], begin=at(int(reverse)), size=(*shape[:axis], parts * width, *shape[axis + 1 :])
        )
    inner = call.add("reshape", [value], shape=(*shape[:axis], parts, width, *shape[axis + 1 :]))
    inner = call.add("cumsum", [inner], axis=axis + 1, reverse=reverse)
    begin = tuple(width - 1 if a == axis + 1 and not reverse else 0 for a in range(rank + 1))
    size = (*shape[:axis], parts, 1, *shape[axis + 1 :])
    totals = call.add(
        "reshape", [call.add("slice", [inner], begin=begin, size=size)], shape=size[: axis + 1] + size[axis + 2 :]
    )
    earlier = call.add("reshape", [_scan(call, totals, axis, True, reverse)], shape=size)
    out = call.add(
        "reshape", [call.add("add", [inner, earlier])], shape=(*shape[:axis], parts * width, *shape[axis + 1 :])
    )
    return call.add("slice", [out], begin=at(more if reverse else 0), size=shape) if more else out
