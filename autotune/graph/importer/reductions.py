"""Reductions over axes, and the place of the largest element."""

from __future__ import annotations

import math

from autotune.graph.importer.call import Call
from autotune.graph.importer.elementwise import broadcast
from autotune.graph.importer.registry import imports

PLAIN = {"ReduceMean": "mean", "ReduceSum": "sum", "ReduceMax": "max", "ReduceMin": "min", "ReduceProd": "prod"}
SUMS = ("ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp")


@imports(*PLAIN, *SUMS)
def reduction(call: Call) -> str:
    """Axes are an attribute in older opsets and an input in newer ones."""
    rank = len(call.shape())
    given = call.attr("axes")
    if given is None and call.has(1):
        given = call.integers(1, "axes")
    if not given and call.attr("noop_with_empty_axes", 0):
        return _over(call, call.value(0), (), False)
    axes = tuple(sorted({call.axis(a, rank) for a in given or range(rank)}))
    return _over(call, call.value(0), axes, bool(call.attr("keepdims", 1)))


def _over(call: Call, x: str, axes: tuple[int, ...], keep: bool) -> str:
    if call.op in PLAIN:
        return reduced(call, x, PLAIN[call.op], axes, keep)
    if call.op == "ReduceL1":
        return reduced(call, call.add("abs", x), "sum", axes, keep)
    if call.op == "ReduceLogSum":
        return call.add("log", reduced(call, x, "sum", axes, keep))
    if call.op == "ReduceLogSumExp":
        largest = reduced(call, x, "max", axes, True)
        total = reduced(call, call.add("exp", call.add("subtract", x, largest)), "sum", axes, True)
        out = call.add("add", call.add("log", total), largest)
        return out if keep else call.reshape(out, [n for a, n in enumerate(call.shape()) if a not in axes])
    squares = reduced(call, call.add("multiply", x, x), "sum", axes, keep)
    return call.add("sqrt", squares) if call.op == "ReduceL2" else squares


def reduced(call: Call, x: str, reducer: str, axes: tuple[int, ...], keep: bool) -> str:
    """`x` reduced over `axes`, which are kept as 1 or not; over none of them it is what it was."""
    shape = call.type_of(x).shape
    if not axes:
        return x
    kept = [1 if a in axes else n for a, n in enumerate(shape)]
    out_shape = kept if keep else [n for a, n in enumerate(shape) if a not in axes]
    if len(axes) == len(shape):  # a reduction leaves an axis
        x, axes = call.reshape(x, (1, math.prod(shape))), (1,)
    return call.reshape(call.in_float32("reduce", x, axes=axes, reducer=reducer), out_shape)


@imports("ArgMax", "ArgMin")
def arg_max(call: Call) -> str:
    """The first place, or the last one with select_last_index."""
    shape = call.shape()
    axis = call.axis(call.attr("axis", 0), len(shape))
    x = call.value(0) if call.op == "ArgMax" else call.add("negative", call.value(0))
    if len(shape) == 1:
        x, axis = call.reshape(x, (1, *shape)), 1
    out = call.add("arg_max", x, axis=axis, last=bool(call.attr("select_last_index", 0)))
    axis = 0 if len(shape) == 1 else axis
    kept = [1 if a == axis else n for a, n in enumerate(shape)]
    return call.reshape(out, kept if call.attr("keepdims", 1) else [n for a, n in enumerate(shape) if a != axis])


@imports("LpNormalization")
def lp_normalization(call: Call) -> str:
    """Divided by the norm along an axis, by 1 where that is 0."""
    x, order = call.value(0), call.attr("p", 2)
    axes = (call.axis(call.attr("axis", -1), len(call.shape())),)
    if order == 1:
        norm = reduced(call, call.add("abs", x), "sum", axes, True)
    else:
        norm = call.add("sqrt", reduced(call, call.add("multiply", x, x), "sum", axes, True))
    zero = broadcast(call, "equal", norm, call.scalar(0, norm))
    safe = broadcast(call, "where", zero, call.scalar(1, norm), norm)
    return call.add("divide", x, safe)
