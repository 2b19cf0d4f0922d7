"""Operators that look at whole rows: softmax, layer normalisation, reductions."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from search_space import te
from search_space.ir.expr import Expr
from search_space.operators.base import Args, Array, Operator, one_of, positive

EPSILON = 1e-5


def softmax_arguments(rows: int, columns: int) -> dict[str, Any]:
    """Softmax over the columns of data (rows, columns)."""
    positive(rows=rows, columns=columns)
    return {"rows": rows, "columns": columns}


def _softmax_tensors(args: Args) -> list[te.Tensor]:
    rows, columns = args["rows"], args["columns"]
    x = te.placeholder((rows, columns), name="data")
    r, q = te.reduce_axis((0, columns), "r"), te.reduce_axis((0, columns), "r")
    largest = te.compute((rows,), lambda i: te.max(x[i, r], axis=r), name="maximum")
    e = te.compute((rows, columns), lambda i, j: te.exp(x[i, j] - largest[i]), name="exponent")
    total = te.compute((rows,), lambda i: te.sum(e[i, q], axis=q), name="total")
    inverse = te.compute((rows,), lambda i: 1.0 / total[i], name="inverse")
    return [x, te.compute((rows, columns), lambda i, j: e[i, j] * inverse[i], name="softmax")]


def _softmax_reference(args: Args, x: Array) -> Array:
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return np.asarray(e / e.sum(axis=1, keepdims=True))


def layer_norm_arguments(rows: int, columns: int) -> dict[str, Any]:
    """Layer normalisation of data (rows, columns) with constant gamma and beta (columns,), epsilon 1e-5."""
    positive(rows=rows, columns=columns)
    return {"rows": rows, "columns": columns}


def _layer_norm_tensors(args: Args) -> list[te.Tensor]:
    rows, columns = args["rows"], args["columns"]
    x = te.placeholder((rows, columns), name="data")
    gamma, beta = (te.placeholder((columns,), name=n, constant=True) for n in ("gamma", "beta"))
    r, q = te.reduce_axis((0, columns), "r"), te.reduce_axis((0, columns), "r")
    sums = te.compute((rows,), lambda i: te.sum(x[i, r], axis=r), name="sum")
    mean = te.compute((rows,), lambda i: sums[i] * (1 / columns), name="mean")
    squares = te.compute((rows,), lambda i: te.sum((x[i, q] - mean[i]) * (x[i, q] - mean[i]), axis=q), name="squares")
    scale = te.compute((rows,), lambda i: te.rsqrt(squares[i] * (1 / columns) + EPSILON), name="scale")
    body = lambda i, j: (x[i, j] - mean[i]) * scale[i] * gamma[j] + beta[j]  # noqa: E731
    return [x, gamma, beta, te.compute((rows, columns), body, name="layer_norm")]


def _layer_norm_reference(args: Args, x: Array, gamma: Array, beta: Array) -> Array:
    centred = x - x.mean(axis=1, keepdims=True, dtype=np.float64)
    variance = (centred**2).mean(axis=1, keepdims=True)
    return np.asarray(centred / np.sqrt(variance + EPSILON) * gamma + beta, np.float32)


REDUCERS = ("sum", "max", "min", "prod", "mean")
_NUMPY: dict[str, Any] = {"sum": np.sum, "max": np.max, "min": np.min, "prod": np.prod, "mean": np.mean}


def reduce_arguments(shape: Sequence[int], axes: Sequence[int], reducer: str = "sum") -> dict[str, Any]:
    """`reducer` over `axes` of data of `shape`; the axes are dropped."""
    sizes = list(shape)
    for i, size in enumerate(sizes):
        positive(**{f"shape[{i}]": size})
    one_of("reducer", reducer, REDUCERS)
    found = sorted({a % len(sizes) if -len(sizes) <= a < len(sizes) else -1 for a in axes})
    if not found or found[0] < 0 or len(found) == len(sizes):
        raise ValueError(f"`axes` must name some but not all of {len(sizes)} axes, but got axes={list(axes)}")
    return {"shape": sizes, "axes": found, "reducer": reducer}


def _reduce_tensors(args: Args) -> list[te.Tensor]:
    shape, axes, reducer = args["shape"], args["axes"], args["reducer"]
    x = te.placeholder(shape, name="data")
    reduced = {a: te.reduce_axis((0, shape[a]), f"r{a}") for a in axes}
    kept = tuple(s for a, s in enumerate(shape) if a not in axes)
    functions: dict[str, Any] = {"sum": te.sum, "max": te.max, "min": te.min, "prod": te.prod, "mean": te.sum}
    function = functions[reducer]

    def body(*index: Any) -> Any:
        place = iter(index)
        full = tuple(reduced[a] if a in reduced else next(place) for a in range(len(shape)))
        return function(x[full], axis=list(reduced.values()))

    out = te.compute(kept, body, name="reduce")
    if reducer == "mean":
        scale = 1 / prod(shape[a] for a in axes)

        def mean(*index: Any) -> Expr:
            value: Expr = out[index] * scale
            return value

        return [x, te.compute(kept, mean, name="mean")]
    return [x, out]


def _reduce_reference(args: Args, x: Array) -> Array:
    return np.asarray(_NUMPY[args["reducer"]](x, axis=tuple(args["axes"])), np.float32)


OPERATORS = (
    Operator(
        "softmax", softmax_arguments, _softmax_tensors, _softmax_reference, lambda a: 5 * a["rows"] * a["columns"]
    ),
    Operator(
        "layer_norm",
        layer_norm_arguments,
        _layer_norm_tensors,
        _layer_norm_reference,
        lambda a: 8 * a["rows"] * a["columns"],
    ),
    Operator("reduce", reduce_arguments, _reduce_tensors, _reduce_reference, lambda a: prod(a["shape"])),
)
