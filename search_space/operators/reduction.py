"""Reductions over some axes of an array."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from search_space import te
from search_space.ir.expr import Expr
from search_space.operators.arithmetic import exact
from search_space.operators.base import Args, Array, Operator, Precision
from search_space.operators.checks import axes as axes_of
from search_space.operators.checks import choice
from search_space.operators.checks import shape as shape_of
from search_space.operators.naming import over

REDUCERS: dict[str, tuple[Callable[..., te.Reduction], Callable[..., Any]]] = {
    "sum": (te.sum, np.sum),
    "max": (te.max, np.max),
    "min": (te.min, np.min),
    "prod": (te.prod, np.prod),
    "mean": (te.sum, np.mean),
    "pivoted_mean": (te.sum, np.mean),
}
_MEANS = ("mean", "pivoted_mean")


def reduce(
    shape: Sequence[int], axes: int | Sequence[int], reducer: str = "sum", dtype: str = "float32"
) -> dict[str, Any]:
    """Reduces data of `shape` over `axes`.

    Args:
        axes: some of the axes, but not all; negative ones count from the last.
        reducer: sum, max, min, prod, mean, or pivoted_mean: the mean through differences from the first element. Its
            error grows with the spread of the elements, not with their size, as variances need it.
        dtype: float32, int32 or int64; there is no mean of integers.
    """
    extents = shape_of("shape", shape)
    reduced_axes = axes_of("axes", axes, len(extents))
    if len(reduced_axes) == len(extents):
        raise ValueError(f"`axes` must leave an axis, but got axes={list(reduced_axes)} of shape={list(extents)}")
    dtype = choice("dtype", dtype, ("float32", "int32", "int64"))
    known = [r for r in REDUCERS if r not in _MEANS or dtype == "float32"]
    reducer = choice("reducer", reducer, known, "" if dtype == "float32" else f" for dtype={dtype}")
    return {"shape": extents, "axes": reduced_axes, "reducer": reducer, "dtype": dtype}


def direct(args: Args) -> list[te.Tensor]:
    """Defines the reduction, followed for a mean by a product with one over the number of elements."""
    shape, reduced = args["shape"], args["axes"]
    data = te.placeholder(shape, args["dtype"], "data")
    within = {a: te.reduce_axis((0, shape[a]), f"r{a}") for a in reduced}
    spatial = [a for a in range(len(shape)) if a not in within]

    def element(index: Sequence[Any], reduced_at: Mapping[int, Any]) -> Expr:
        at = {**reduced_at, **dict(zip(spatial, index, strict=True))}
        return data[tuple(at[a] for a in range(len(shape)))]

    def pivot(index: Sequence[Any]) -> Expr:
        first = element(index, dict.fromkeys(within, 0))
        return te.if_then_else(te.eq(first - first, 0), first, te.const(0.0, args["dtype"]))  # 0 for an infinity or NaN

    def body(*index: Any) -> te.Reduction:
        term = element(index, within)
        term = term - pivot(index) if args["reducer"] == "pivoted_mean" else term
        return REDUCERS[args["reducer"]][0](term, axis=[*within.values()])

    def share(*index: Any) -> Expr:
        mean = out[index] * (1 / _terms(args))
        return pivot(index) + mean if args["reducer"] == "pivoted_mean" else mean

    extents, names = tuple(shape[a] for a in spatial), [f"i{a}" for a in spatial]
    out = te.compute(extents, over(names, body), name="reduce")
    if args["reducer"] not in _MEANS:
        return [data, out]
    return [data, te.compute(extents, over(names, share), name="mean")]


def reference(args: Args, data: Array) -> Array:
    """Computes the reduction by the NumPy function of its name."""
    return np.asarray(REDUCERS[args["reducer"]][1](exact(data), axis=args["axes"]))


def _terms(args: Args) -> int:
    return prod(args["shape"][a] for a in args["axes"])


def _scale(args: Args) -> float:
    if args["reducer"] not in _MEANS:
        return 1.0
    # A pivot is one more operand of a sum, as large as an element.
    return (2 if args["reducer"] == "pivoted_mean" else 1) / _terms(args)


REDUCE = Operator(
    "reduce",
    reduce,
    {"direct": direct},
    reference,
    lambda args: prod(args["shape"]),
    Precision(_terms, _scale),
    lambda args: (0.5, 1.5) if args["reducer"] == "prod" else (-1.0, 1.0),
)
