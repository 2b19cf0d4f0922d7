"""Row-wise workloads whose kernels `benchmarks.row_wise` compares, by kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from search_space import te, workloads
from search_space.ir.expr import Expr
from search_space.workloads import Workload

EPSILON = 1e-5
"""Added to variances and to means of squares."""


def log_softmax(rows: int, length: int) -> Workload:
    """Defines the logarithm of each row's softmax, for data (rows, length)."""
    x = te.placeholder((rows, length), name="data")
    r, q = te.reduce_axis((0, length), "r"), te.reduce_axis((0, length), "q")
    largest = te.compute((rows,), lambda i: te.max(x[i, r], axis=r), name="maximum")
    total = te.compute((rows,), lambda i: te.sum(te.exp(x[i, q] - largest[i]), axis=q), name="total")
    logarithm = te.compute((rows,), lambda i: te.log(total[i]), name="logarithm")

    # Not x less the sum of both: where rows are large, that leaves no digit of the logarithm.
    def shift(i: Expr, j: Expr) -> Expr:
        return (x[i, j] - largest[i]) - logarithm[i]

    return workloads.from_tensors([x, te.compute((rows, length), shift, name="log_softmax")])


def rms_norm(rows: int, length: int) -> Workload:
    """Defines rows of data (rows, length) over the root of their mean square, times gamma (length,)."""
    x = te.placeholder((rows, length), name="data")
    gamma = te.placeholder((length,), name="gamma", constant=True)
    r = te.reduce_axis((0, length), "r")
    squares = te.compute((rows,), lambda i: te.sum(x[i, r] * x[i, r], axis=r), name="squares")
    scale = te.compute((rows,), lambda i: te.rsqrt(squares[i] * (1 / length) + EPSILON), name="scale")
    output = te.compute((rows, length), lambda i, j: x[i, j] * scale[i] * gamma[j], name="rms_norm")
    return workloads.from_tensors([x, gamma, output])


def reduction(reducer: str, rows: int, length: int) -> Workload:
    """Defines a reduction of each row of data (rows, length) to one number."""
    return workloads.reduce((rows, length), 1, reducer)


KINDS: Mapping[str, Callable[[int, int], Workload]] = {
    "softmax": lambda rows, length: workloads.softmax(rows, length),
    "log_softmax": log_softmax,
    "layer_norm": lambda rows, length: workloads.layer_norm(rows, length, EPSILON),
    "rms_norm": rms_norm,
    "sum": partial(reduction, "sum"),
    "mean": partial(reduction, "mean"),
    "max": partial(reduction, "max"),
}
"""Name -> the workload of so many rows of a length."""
