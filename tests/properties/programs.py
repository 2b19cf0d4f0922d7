"""Small tensor programs for random schedules: every kind of access, reducer and dtype on extents of a few elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from search_space import te
from search_space.dtypes import numpy_dtype
from search_space.ir.expr import FLOATS
from search_space.schedule.state import State, initial_state

Tensors = list[te.Tensor]


def _accumulate(value: Any, dtype: str) -> Any:
    return value.astype("int32") if dtype in ("int8", "uint8") else value


def matmul(dtype: str) -> Tensors:
    """(5, 9) x (9, 7) with a constant right side; bytes are summed in int32."""
    a, b = te.placeholder((5, 9), dtype, "A"), te.placeholder((9, 7), dtype, "B", constant=True)
    k = te.reduce_axis((0, 9), "k")
    return [
        te.compute((5, 7), lambda i, j: te.sum(_accumulate(a[i, k], dtype) * _accumulate(b[k, j], dtype), axis=k), "C")
    ]


def dense_relu(dtype: str) -> Tensors:
    """A product with a bias and a maximum after it."""
    a, w = te.placeholder((3, 8), dtype, "A"), te.placeholder((8, 10), dtype, "W", constant=True)
    bias = te.placeholder((10,), dtype, "bias", constant=True)
    k = te.reduce_axis((0, 8), "k")
    y = te.compute((3, 10), lambda i, j: te.sum(a[i, k] * w[k, j], axis=k), "Y")
    return [te.compute((3, 10), lambda i, j: te.maximum(y[i, j] + bias[j], 0), "Z")]


def conv(dtype: str) -> Tensors:
    """A 3x2 convolution of 6x5 with padding 1 and stride 2 along the height."""
    x, w = te.placeholder((6, 5, 2), dtype, "X"), te.placeholder((3, 2, 2, 3), dtype, "W", constant=True)
    pad = te.compute(
        (8, 7, 2),
        lambda h, w, c: te.if_then_else(te.all(h >= 1, h < 7, w >= 1, w < 6), x[h - 1, w - 1, c], 0),
        "pad",
    )
    rh, rw, rc = (te.reduce_axis((0, e), n) for e, n in ((3, "rh"), (2, "rw"), (2, "rc")))
    y = te.compute(
        (3, 6, 3), lambda h, v, k: te.sum(pad[h * 2 + rh, v + rw, rc] * w[rh, rw, rc, k], axis=[rh, rw, rc]), "Y"
    )
    return [te.compute((3, 6, 3), lambda h, v, k: te.maximum(y[h, v, k], 0), "Z")]


def make_upsampling(dtype: str) -> Tensors:
    """Stride-2 upsampling: divisions and remainders of indices that may be negative."""
    x = te.placeholder((4,), dtype, "X")
    w = te.placeholder((3,), dtype, "W", constant=True)
    r = te.reduce_axis((0, 3), "r")

    def tap(i: Any) -> te.Reduction:
        at = i + 1 - r
        inside = te.all(at % 2 < 1, at // 2 >= 0, at // 2 < 4)
        return te.sum(te.if_then_else(inside, x[at // 2] * w[r], 0), axis=r)

    return [te.compute((9,), tap, "Y")]


def softmax(dtype: str) -> Tensors:
    """Rows normalised: two reductions and two element-wise stages."""
    x = te.placeholder((3, 9), dtype, "X")
    j, k = te.reduce_axis((0, 9), "j"), te.reduce_axis((0, 9), "k")
    top = te.compute((3,), lambda i: te.max(x[i, j], axis=j), "top")
    e = te.compute((3, 9), lambda i, v: te.exp(x[i, v] - top[i]), "e")
    total = te.compute((3,), lambda i: te.sum(e[i, k], axis=k), "total")
    return [te.compute((3, 9), lambda i, v: e[i, v] / total[i], "Y")]


def chain(dtype: str) -> Tensors:
    """Element-wise stages that read neighbours, mirrored and fused indices."""
    a = te.placeholder((11,), dtype, "A")
    p = te.compute((11,), lambda i: a[i] * 3 - a[10 - i], "P")
    q = te.compute((9,), lambda i: te.minimum(p[i], p[i + 2]) + p[i + 1], "Q")
    return [te.compute((3, 3), lambda i, j: q[i * 3 + j] + te.if_then_else(i < j, a[i + j], 1), "R")]


def flatten(dtype: str) -> Tensors:
    """An array read through divisions and remainders of a flat index."""
    a = te.placeholder((3, 5), dtype, "A")
    p = te.compute((3, 5), lambda i, j: a[i, j] + a[i, j], "P")
    return [te.compute((15,), lambda i: p[i // 5, i % 5] - a[(14 - i) // 5, i % 5], "F")]


def pooling(dtype: str) -> Tensors:
    """Windows of 3 with stride 2 and a maximum, beyond the edges the least value."""
    x = te.placeholder((7, 3), dtype, "X")
    r = te.reduce_axis((0, 3), "r")
    least = {"bool": False, "uint8": 0}.get(dtype, -100)
    pad = te.compute((9, 3), lambda i, c: te.if_then_else(te.all(i >= 1, i < 8), x[i - 1, c], least), "pad")
    return [te.compute((4, 3), lambda i, c: te.max(pad[i * 2 + r, c], axis=r), "Y")]


def scale(dtype: str) -> Tensors:
    """Indices as data: int64 positions mixed with loaded values."""
    a = te.placeholder((4, 6), dtype, "A")
    b = te.compute((4, 6), lambda i, j: a[i, j].astype("int64") * 3000000000 + (i * 6 + j) % 5, "B")
    return [te.compute((4, 6), lambda i, j: te.if_then_else(j < i, b[i, j], i - j), "C")]


def mask(dtype: str) -> Tensors:
    """Comparisons kept as bool, reduced over, and used as conditions."""
    a = te.placeholder((4, 7), dtype, "A")
    k = te.reduce_axis((0, 7), "k")
    big = te.compute((4, 7), lambda i, j: te.all(a[i, j] > 1, j < 6), "big")
    any_big = te.compute((4,), lambda i: te.max(big[i, k], axis=k), "any")
    return [te.compute((4, 7), lambda i, j: te.if_then_else(any_big[i], a[i, j], 0), "Y")]


def product_of_all(dtype: str) -> Tensors:
    """Reduces a matrix to one element, by products."""
    a = te.placeholder((3, 5), dtype, "A")
    i, j = te.reduce_axis((0, 3), "i"), te.reduce_axis((0, 5), "j")
    return [te.compute((1,), lambda _: te.prod(a[i, j], axis=[i, j]), "Y")]


def narrow(dtype: str) -> Tensors:
    """Conversions down and up again, over a least value of each row."""
    a = te.placeholder((4, 6), dtype, "A")
    k = te.reduce_axis((0, 6), "k")
    small = te.compute((4, 6), lambda i, j: a[i, j].astype("int8"), "small")
    least = te.compute((4,), lambda i: te.min(small[i, k], axis=k), "least")
    return [te.compute((4, 6), lambda i, j: small[i, j].astype("float32") * 0.5 + least[i].astype("float32"), "Y")]


INTEGERS = ("int8", "uint8", "int32", "int64")
PROGRAMS: dict[str, tuple[Callable[[str], Tensors], tuple[str, ...]]] = {
    "matmul": (matmul, (*FLOATS, *INTEGERS)),
    "dense_relu": (dense_relu, ("float32", "int32")),
    "conv": (conv, ("float32", "float16", "int32")),
    "transposed": (make_upsampling, ("float32", "int64")),
    "softmax": (softmax, ("float32", "bfloat16")),
    "chain": (chain, (*FLOATS, *INTEGERS)),
    "flatten": (flatten, ("float32", "int32")),
    "pooling": (pooling, ("float32", "float16", "int8", "uint8", "bool")),
    "scale": (scale, ("int8", "int32", "int64")),
    "mask": (mask, ("float32", "int32", "uint8")),
    "product_of_all": (product_of_all, ("float32", "int32", "bfloat16")),
    "narrow": (narrow, ("float32", "int32", "uint8")),
}


def initial(name: str, dtype: str) -> State:
    """The unscheduled state of a program."""
    return initial_state(PROGRAMS[name][0](dtype))


def inputs(state: State, seed: int) -> dict[str, NDArray[Any]]:
    """Small random values, exact in every dtype."""
    rng = np.random.default_rng(seed)
    arrays = {}
    for source in state.inputs:
        low, high = (0, 4) if source.dtype == "uint8" else (0, 2) if source.dtype == "bool" else (-3, 4)
        numbers = rng.integers(low, high, source.shape)
        scale = 0.5 if source.dtype in FLOATS else 1
        arrays[source.name] = (numbers * scale).astype(numpy_dtype(source.dtype))
    return arrays
