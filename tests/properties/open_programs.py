"""Small tensor programs of open sizes, for random schedules: sizes outside and inside, in windows and flattened."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from search_space import te
from search_space.dtypes import numpy_dtype
from search_space.ir.expr import FLOATS, lift, substitute
from search_space.schedule.state import State, initial_state
from tests.properties.traces import Chooser

Tensors = list[te.Tensor]
LOW, HIGH = 3, 11
"""Of every size: below some factors, and above."""


def _size(name: str) -> Any:
    return te.var(name, LOW, HIGH)


def rows(dtype: str) -> Tensors:
    """(n, 9) x (9, 7) with a constant right side, its bias and a maximum: only rows are open."""
    n, k = _size("n"), te.reduce_axis((0, 9), "k")
    a, b = te.placeholder((n, 9), dtype, "A"), te.placeholder((9, 7), dtype, "B", constant=True)
    bias = te.placeholder((7,), dtype, "bias")
    c = te.compute((n, 7), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), "C")
    return [te.compute((n, 7), lambda i, j: te.maximum(c[i, j] + bias[j], 0), "Z")]


def product(dtype: str) -> Tensors:
    """(n, k) x (k, m), all open: every stride is."""
    n, m, depth = _size("n"), _size("m"), _size("d")
    k = te.reduce_axis((0, depth), "k")
    a, b = te.placeholder((n, depth), dtype, "A"), te.placeholder((depth, m), dtype, "B")
    return [te.compute((n, m), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), "C")]


def softmax(dtype: str) -> Tensors:
    """Rows of open length normalised."""
    n = _size("n")
    x = te.placeholder((3, n), dtype, "X")
    j, k = te.reduce_axis((0, n), "j"), te.reduce_axis((0, n), "k")
    top = te.compute((3,), lambda i: te.max(x[i, j], axis=j), "top")
    e = te.compute((3, n), lambda i, v: te.exp(x[i, v] - top[i]), "e")
    total = te.compute((3,), lambda i: te.sum(e[i, k], axis=k), "total")
    return [te.compute((3, n), lambda i, v: e[i, v] / total[i], "Y")]


def conv(dtype: str) -> Tensors:
    """A convolution of open length, 3 wide, padded by 1."""
    n = _size("n")
    x, w = te.placeholder((n, 2), dtype, "X"), te.placeholder((3, 2, 5), dtype, "W", constant=True)
    pad = te.compute((n + 2, 2), lambda i, c: te.if_then_else(te.all(i >= 1, i < n + 1), x[i - 1, c], 0), "pad")
    r, c = te.reduce_axis((0, 3), "r"), te.reduce_axis((0, 2), "c")
    return [te.compute((n, 5), lambda i, k: te.sum(pad[i + r, c] * w[r, c, k], axis=[r, c]), "Y")]


def pooling(dtype: str) -> Tensors:
    """Windows of 3 with stride 2 over an open length: an output of half as many."""
    n, r = _size("n"), te.reduce_axis((0, 3), "r")
    x = te.placeholder((4, n), dtype, "X")
    return [te.compute((4, (n - 1) // 2), lambda c, i: te.max(x[c, i * 2 + r], axis=r), "Y")]


def flatten(dtype: str) -> Tensors:
    """An array of two open axes read through divisions by one of them."""
    n, m = _size("n"), _size("m")
    a = te.placeholder((n, m), dtype, "A")
    p = te.compute((n, m), lambda i, j: a[i, j] + a[i, j], "P")
    return [te.compute((n * m,), lambda i: p[i // m, i % m] - a[(n * m - 1 - i) // m, i % m], "F")]


def make_transposition(dtype: str) -> Tensors:
    """Two open axes exchanged, scaled by one of them."""
    n, m = _size("n"), _size("m")
    a = te.placeholder((n, m), dtype, "A")
    return [te.compute((m, n), lambda i, j: a[j, i] * (n - j).astype(dtype), "T")]


def chain(dtype: str) -> Tensors:
    """Neighbours and mirrored indices, below and above a diagonal."""
    n = _size("n")
    a = te.placeholder((n,), dtype, "A")
    p = te.compute((n,), lambda i: a[i] * 3 - a[n - 1 - i], "P")
    q = te.compute((n - 2,), lambda i: te.minimum(p[i], p[i + 2]) + p[i + 1], "Q")
    return [te.compute((n - 2, n), lambda i, j: q[i] + te.if_then_else(i < j, a[j], 1), "R")]


def mask(dtype: str) -> Tensors:
    """Comparisons kept as bool, reduced over an open axis, and used as conditions."""
    n, m = _size("n"), _size("m")
    a, k = te.placeholder((n, m), dtype, "A"), te.reduce_axis((0, m), "k")
    big = te.compute((n, m), lambda i, j: te.all(a[i, j] > 1, j < m - 1), "big")
    any_big = te.compute((n,), lambda i: te.max(big[i, k], axis=k), "any")
    return [te.compute((n, m), lambda i, j: te.if_then_else(any_big[i], a[i, j], 0), "Y")]


def product_of_all(dtype: str) -> Tensors:
    """Reduces a matrix to one element."""
    n, m = _size("n"), _size("m")
    a = te.placeholder((n, m), dtype, "A")
    i, j = te.reduce_axis((0, n), "i"), te.reduce_axis((0, m), "j")
    return [te.compute((1,), lambda _: te.sum(a[i, j], axis=[i, j]), "Y")]


OPEN: dict[str, tuple[Callable[[str], Tensors], tuple[str, ...]]] = {
    "rows": (rows, ("float32", "int32")),
    "product": (product, ("float32", "int32")),
    "softmax": (softmax, ("float32",)),
    "conv": (conv, ("float32", "bfloat16")),
    "pooling": (pooling, ("float32", "uint8")),
    "flatten": (flatten, ("float32", "int32")),
    "transposed": (make_transposition, ("float32", "int32")),
    "chain": (chain, ("float32", "int64")),
    "mask": (mask, ("float32", "uint8")),
    "product_of_all": (product_of_all, ("float32", "int32")),
}


def initial(name: str, dtype: str) -> State:
    """The unscheduled state of a program."""
    return initial_state(OPEN[name][0](dtype))


def draw_sizes(choose: Chooser) -> dict[str, int]:
    """A number for every size, the ends of the range as often as all between."""
    numbers = (LOW, HIGH, choose.pick(range(LOW, HIGH + 1)))
    return {name: choose.pick(numbers) for name in "ndm"}


def inputs(state: State, sizes: Mapping[str, int], seed: int) -> dict[str, NDArray[Any]]:
    """Small random values, exact in every dtype."""
    rng = np.random.default_rng(seed)
    arrays = {}
    for source in state.inputs:
        shape = [int(substitute(lift(extent), sizes).value) for extent in source.shape]
        numbers = rng.integers(0 if source.dtype == "uint8" else -3, 4, shape)
        arrays[source.name] = (numbers * (0.5 if source.dtype in FLOATS else 1)).astype(numpy_dtype(source.dtype))
    return arrays
