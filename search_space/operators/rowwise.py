"""Operators over the rows of a matrix: softmax, layer normalisation."""

from __future__ import annotations

from typing import Any

import numpy as np

from search_space import te
from search_space.operators.arithmetic import exact
from search_space.operators.base import Args, Array, Operator, Precision
from search_space.operators.checks import not_negative, sizes


def softmax(rows: int, columns: int) -> dict[str, Any]:
    """Computes the softmax of each row of data (rows, columns)."""
    return {**sizes(rows=rows, columns=columns)}


def layer_norm(rows: int, columns: int, epsilon: float = 1e-5) -> dict[str, Any]:
    """Normalises rows of data (rows, columns) to mean 0 and variance 1, times gamma plus beta (columns,).

    Args:
        epsilon: added to the variance.
    """
    return {**sizes(rows=rows, columns=columns), "epsilon": not_negative("epsilon", epsilon)}


def _softmax(args: Args) -> list[te.Tensor]:
    rows, columns = args["rows"], args["columns"]
    x = te.placeholder((rows, columns), name="data")
    r, q = te.reduce_axis((0, columns), "r"), te.reduce_axis((0, columns), "r")
    largest = te.compute((rows,), lambda i: te.max(x[i, r], axis=r), name="maximum")
    e = te.compute((rows, columns), lambda i, j: te.exp(x[i, j] - largest[i]), name="exponent")
    total = te.compute((rows,), lambda i: te.sum(e[i, q], axis=q), name="total")
    inverse = te.compute((rows,), lambda i: 1.0 / total[i], name="inverse")
    return [x, te.compute((rows, columns), lambda i, j: e[i, j] * inverse[i], name="softmax")]


def _softmax_reference(args: Args, data: Array) -> Array:
    x = exact(data)
    e: Array = np.exp(x - x.max(1, keepdims=True))
    e /= e.sum(1, keepdims=True)
    return e


def _layer_norm(args: Args) -> list[te.Tensor]:
    rows, columns = args["rows"], args["columns"]
    x = te.placeholder((rows, columns), name="data")
    gamma, beta = (te.placeholder((columns,), name=name, constant=True) for name in ("gamma", "beta"))
    r, q = te.reduce_axis((0, columns), "r"), te.reduce_axis((0, columns), "r")
    share = 1 / columns
    # Differences from the row's first element: a sum of large numbers has a larger rounding error than their
    # differences, and for equal numbers only the error of their mean would remain, times 1 / sqrt(epsilon).
    total = te.compute((rows,), lambda i: te.sum(x[i, r] - x[i, 0], axis=r), name="sum")
    mean = te.compute((rows,), lambda i: x[i, 0] + total[i] * share, name="mean")

    # Two passes: the mean of squares less the square of the mean cancels where the mean is large.
    def square(i: Any) -> te.Reduction:
        return te.sum((x[i, q] - mean[i]) * (x[i, q] - mean[i]), axis=q)

    squares = te.compute((rows,), square, name="squares")
    scale = te.compute((rows,), lambda i: te.rsqrt(squares[i] * share + args["epsilon"]), name="scale")

    def normal(i: Any, j: Any) -> Any:
        return (x[i, j] - mean[i]) * scale[i] * gamma[j] + beta[j]

    return [x, gamma, beta, te.compute((rows, columns), normal, name="layer_norm")]


def _layer_norm_reference(args: Args, data: Array, gamma: Array, beta: Array) -> Array:
    x = exact(data)
    x -= x.mean(1, keepdims=True)
    x /= np.sqrt((x * x).mean(1, keepdims=True) + args["epsilon"])
    return x * exact(gamma) + exact(beta)


def _elements(args: Args) -> int:
    return int(args["rows"] * args["columns"])


def _columns(args: Args) -> int:
    return int(args["columns"])


SOFTMAX = Operator(
    "softmax",
    softmax,
    {"direct": _softmax},
    _softmax_reference,
    lambda args: 5 * _elements(args),
    Precision(_columns, lambda args: 1 / _columns(args)),
)
LAYER_NORM = Operator(
    "layer_norm",
    layer_norm,
    {"direct": _layer_norm},
    _layer_norm_reference,
    lambda args: 8 * _elements(args),
    Precision(_columns),
)
