"""Operations of random tensor programs, each twice: as a tensor expression, and in NumPy on whole arrays.

The two are written apart from each other: what they share is the names and attributes of a node alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from search_space import te
from search_space.dtypes import numpy_dtype
from search_space.ir.expr import FLOATS

Array = NDArray[Any]
Attrs = Mapping[str, Any]


@dataclass(frozen=True)
class Op:
    """An operation: `expression(name, attrs, *tensors)` and `evaluate(attrs, *arrays)`."""

    expression: Callable[..., te.Tensor]
    evaluate: Callable[..., Array]


OPS: dict[str, Op] = {}


def _op(name: str, evaluate: Callable[..., Array]) -> Callable[[Callable[..., te.Tensor]], Callable[..., te.Tensor]]:
    def register(expression: Callable[..., te.Tensor]) -> Callable[..., te.Tensor]:
        OPS[name] = Op(expression, evaluate)
        return expression

    return register


def _wide(array: Array) -> Array:
    """Halves have few functions in NumPy: what is computed of them is computed in float32 and rounded."""
    return array.astype(np.float32) if array.dtype.itemsize == 2 else array


ERF = np.vectorize(math.erf, otypes=[np.float64])
UNARY: dict[str, tuple[Callable[[Any], Any], Callable[[Array], Array]]] = {
    "relu": (lambda v: te.maximum(v, 0), lambda a: np.maximum(a, 0)),
    "absolute": (te.abs, np.abs),
    "negative": (lambda v: 0 - v, np.negative),
    "tanh": (te.tanh, np.tanh),
    "sigmoid": (te.sigmoid, lambda a: 1 / (1 + np.exp(-a))),
    "erf": (te.erf, ERF),
    "exp": (te.exp, np.exp),
    "root": (lambda v: te.sqrt(te.abs(v)), lambda a: np.sqrt(np.abs(a))),
    "log": (lambda v: te.log(te.abs(v) + 1), lambda a: np.log(np.abs(a) + 1)),
    "rsqrt": (lambda v: te.rsqrt(te.abs(v) + 1), lambda a: 1 / np.sqrt(np.abs(a) + 1)),
    "floor": (te.floor, np.floor),
    "triple": (lambda v: v * 3 + 1, lambda a: a * a.dtype.type(3) + a.dtype.type(1)),
}
INTEGER_UNARY = ("relu", "absolute", "negative", "triple")


@_op("unary", lambda attrs, a: UNARY[attrs["f"]][1](_wide(a)).astype(a.dtype))
def _unary(name: str, attrs: Attrs, x: te.Tensor) -> te.Tensor:
    return te.compute(x.shape, lambda *i: UNARY[attrs["f"]][0](x[i]), name)


@_op("cast", lambda attrs, a: a.astype(numpy_dtype(attrs["dtype"])))
def _cast(name: str, attrs: Attrs, x: te.Tensor) -> te.Tensor:
    return te.compute(x.shape, lambda *i: x[i].astype(attrs["dtype"]), name)


BINARY: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Array, Array], Array]]] = {
    "add": (lambda a, b: a + b, np.add),
    "subtract": (lambda a, b: a - b, np.subtract),
    "multiply": (lambda a, b: a * b, np.multiply),
    "maximum": (te.maximum, np.maximum),
    "minimum": (te.minimum, np.minimum),
    "divide": (lambda a, b: a / (te.abs(b) + 1), lambda a, b: a / (np.abs(b) + 1)),
}


def _broadcast(x: te.Tensor, indices: Sequence[Any]) -> Any:
    last = indices[len(indices) - len(x.shape) :]
    return x[tuple(0 if extent == 1 else i for i, extent in zip(last, x.shape, strict=True))]


@_op("binary", lambda attrs, a, b: BINARY[attrs["f"]][1](_wide(a), _wide(b)).astype(a.dtype))
def _binary(name: str, attrs: Attrs, x: te.Tensor, y: te.Tensor) -> te.Tensor:
    shape = np.broadcast_shapes(x.shape, y.shape)
    return te.compute(shape, lambda *i: BINARY[attrs["f"]][0](_broadcast(x, i), _broadcast(y, i)), name)


REDUCERS = {"sum": np.sum, "max": np.max, "min": np.min, "prod": np.prod}


def _reduce_arrays(attrs: Attrs, a: Array) -> Array:
    more = {"dtype": _wide(a).dtype} if attrs["f"] in ("sum", "prod") else {}
    found = REDUCERS[attrs["f"]](_wide(a), axis=tuple(attrs["axes"]), keepdims=attrs["keep"], **more)
    return np.reshape(found, found.shape or (1,)).astype(a.dtype)


@_op("reduce", _reduce_arrays)
def _reduce(name: str, attrs: Attrs, x: te.Tensor) -> te.Tensor:
    axes = {d: te.reduce_axis((0, x.shape[d]), f"{name}r{d}") for d in attrs["axes"]}
    kept = [d for d in range(len(x.shape)) if d not in axes]
    shape = [1 if d in axes else e for d, e in enumerate(x.shape) if attrs["keep"] or d not in axes]

    def element(*i: Any) -> te.Reduction:
        at = dict(enumerate(i)) if attrs["keep"] else dict(zip(kept, i, strict=False))
        indices = tuple(axes[d].expr if d in axes else at[d] for d in range(len(x.shape)))
        return getattr(te, attrs["f"])(x[indices], axis=list(axes.values()))

    return te.compute(shape or (1,), element, name)


def _products(attrs: Attrs, a: Array, b: Array) -> Array:
    out = np.int32 if a.dtype.itemsize == 1 else a.dtype
    left, right = (v.astype(np.int32) if v.dtype.itemsize == 1 else _wide(v) for v in (a, b))
    left = np.swapaxes(left, -1, -2) if attrs["turn_left"] else left
    right = np.swapaxes(right, -1, -2) if attrs["turn_right"] else right
    return np.asarray(np.matmul(left, right).astype(out))


def _accumulate(value: Any) -> Any:
    return value.astype("int32") if value.dtype in ("int8", "uint8") else value


@_op("matmul", _products)
def _matmul(name: str, attrs: Attrs, x: te.Tensor, y: te.Tensor) -> te.Tensor:
    m, k = x.shape[-2:][::-1] if attrs["turn_left"] else x.shape[-2:]
    n = y.shape[-2] if attrs["turn_right"] else y.shape[-1]
    r = te.reduce_axis((0, k), f"{name}r")

    def element(*i: Any) -> te.Reduction:
        *batch, row, column = i
        left = x[(*batch, r, row)] if attrs["turn_left"] else x[(*batch, row, r)]
        outer = batch if len(y.shape) > 2 else []
        right = y[(*outer, column, r)] if attrs["turn_right"] else y[(*outer, r, column)]
        return te.sum(_accumulate(left) * _accumulate(right), axis=r)

    return te.compute((*x.shape[:-2], m, n), element, name)


def _windows(attrs: Attrs, a: Array, kernel: tuple[int, int]) -> Array:
    """(height, width, channels, kernel height, kernel width)."""
    reach = tuple((k - 1) * d + 1 for k, d in zip(kernel, attrs["dilation"], strict=True))
    found = sliding_window_view(a, reach, axis=(0, 1))
    (sy, sx), (dy, dx) = attrs["stride"], attrs["dilation"]
    return found[::sy, ::sx, :, ::dy, ::dx]


def _convolve(attrs: Attrs, a: Array, weight: Array) -> Array:
    out = np.int32 if a.dtype.itemsize == 1 else a.dtype
    left, right = (v.astype(np.int32) if v.dtype.itemsize == 1 else _wide(v) for v in (a, weight))
    return np.asarray(np.einsum("hwcyx,yxck->hwk", _windows(attrs, left, weight.shape[:2]), right).astype(out))


def _reach(extent: int, kernel: int, stride: int, dilation: int) -> int:
    return (extent - (kernel - 1) * dilation - 1) // stride + 1


@_op("conv", _convolve)
def _conv(name: str, attrs: Attrs, x: te.Tensor, weight: te.Tensor) -> te.Tensor:
    (sy, sx), (dy, dx) = attrs["stride"], attrs["dilation"]
    kh, kw, c, k = weight.shape
    axes = [te.reduce_axis((0, e), f"{name}{n}") for n, e in (("rh", kh), ("rw", kw), ("rc", c))]
    shape = (_reach(x.shape[0], kh, sy, dy), _reach(x.shape[1], kw, sx, dx), k)

    def element(h: Any, w: Any, o: Any) -> te.Reduction:
        y, v, r = axes
        value = x[h * sy + y * dy, w * sx + v * dx, r]
        return te.sum(_accumulate(value) * _accumulate(weight[y, v, r, o]), axis=axes)

    return te.compute(shape, element, name)


def _pool_arrays(attrs: Attrs, a: Array) -> Array:
    found = _windows(attrs, _wide(a), tuple(attrs["kernel"]))
    return np.asarray(REDUCERS[attrs["f"]](found, axis=(3, 4)).astype(a.dtype))


@_op("pool", _pool_arrays)
def _pool(name: str, attrs: Attrs, x: te.Tensor) -> te.Tensor:
    (kh, kw), (sy, sx), (dy, dx) = attrs["kernel"], attrs["stride"], attrs["dilation"]
    axes = [te.reduce_axis((0, e), f"{name}{n}") for n, e in (("rh", kh), ("rw", kw))]
    shape = (_reach(x.shape[0], kh, sy, dy), _reach(x.shape[1], kw, sx, dx), x.shape[2])

    def element(h: Any, w: Any, c: Any) -> te.Reduction:
        return getattr(te, attrs["f"])(x[h * sy + axes[0] * dy, w * sx + axes[1] * dx, c], axis=axes)

    return te.compute(shape, element, name)


@_op("transpose", lambda attrs, a: np.ascontiguousarray(np.transpose(a, attrs["axes"])))
def _transpose(name: str, attrs: Attrs, x: te.Tensor) -> te.Tensor:
    axes = attrs["axes"]
    shape = [x.shape[d] for d in axes]
    return te.compute(shape, lambda *i: x[tuple(i[axes.index(d)] for d in range(len(axes)))], name)


@_op("slice", lambda attrs, a: a[tuple(slice(b, b + (n - 1) * s + 1, s) for b, n, s in attrs["parts"])].copy())
def _slice(name: str, attrs: Attrs, x: te.Tensor) -> te.Tensor:
    parts = attrs["parts"]
    return te.compute(
        [n for _, n, _ in parts], lambda *i: x[tuple(j * s + b for j, (b, _, s) in zip(i, parts, strict=True))], name
    )


@_op("flip", lambda attrs, a: np.flip(a, attrs["axis"]).copy())
def _flip(name: str, attrs: Attrs, x: te.Tensor) -> te.Tensor:
    at, last = attrs["axis"], x.shape[attrs["axis"]] - 1
    return te.compute(x.shape, lambda *i: x[tuple(last - j if d == at else j for d, j in enumerate(i))], name)


@_op("reshape", lambda attrs, a: a.reshape(attrs["shape"]))
def _reshape(name: str, attrs: Attrs, x: te.Tensor) -> te.Tensor:
    def element(*i: Any) -> Any:
        flat: Any = 0
        for j, extent in zip(i, attrs["shape"], strict=True):
            flat = flat * extent + j
        indices = []
        for d, extent in enumerate(x.shape):
            inner = math.prod(x.shape[d + 1 :])
            at = flat // inner if inner > 1 else flat
            indices.append(at % extent if d else at)
        return x[tuple(indices)]

    return te.compute(attrs["shape"], element, name)


def _value(value: float, dtype: str) -> Any:
    return te.const(float(value) if dtype in FLOATS else int(value), dtype)


@_op("pad", lambda attrs, a: np.pad(a, attrs["widths"], constant_values=attrs["value"]))
def _pad(name: str, attrs: Attrs, x: te.Tensor) -> te.Tensor:
    widths = attrs["widths"]
    shape = [before + e + after for (before, after), e in zip(widths, x.shape, strict=True)]

    def element(*i: Any) -> Any:
        inside = []
        for j, (before, after), e in zip(i, widths, x.shape, strict=True):
            inside += [j >= before] * bool(before) + [j < before + e] * bool(after)
        value = x[tuple(j - before for j, (before, _) in zip(i, widths, strict=True))]
        return te.if_then_else(te.all(*inside), value, _value(attrs["value"], x.dtype)) if inside else value

    return te.compute(shape, element, name)


@_op("concat", lambda attrs, a, b: np.concatenate([a, b], attrs["axis"]))
def _concat(name: str, attrs: Attrs, x: te.Tensor, y: te.Tensor) -> te.Tensor:
    axis, first = attrs["axis"], x.shape[attrs["axis"]]
    shape = list(x.shape)
    shape[axis] += y.shape[axis]

    def element(*i: Any) -> Any:
        second = tuple(j - first if d == axis else j for d, j in enumerate(i))
        return te.if_then_else(i[axis] < first, x[i], y[second])

    return te.compute(shape, element, name)


@_op("choose", lambda attrs, a, b, c: np.where(a > attrs["above"], b, c))
def _choose(name: str, attrs: Attrs, x: te.Tensor, y: te.Tensor, z: te.Tensor) -> te.Tensor:
    limit = _value(attrs["above"], x.dtype)
    return te.compute(x.shape, lambda *i: te.if_then_else(x[i] > limit, y[i], z[i]), name)


def _triangle(attrs: Attrs, a: Array) -> Array:
    i, j = np.indices(a.shape)[-2:]
    return np.where((i * attrs["by"] + j) % attrs["modulo"] < attrs["below"], a, a.dtype.type(attrs["value"]))


@_op("mask", _triangle)
def _mask(name: str, attrs: Attrs, x: te.Tensor) -> te.Tensor:
    def element(*i: Any) -> Any:
        chosen = (i[-2] * attrs["by"] + i[-1]) % attrs["modulo"] < attrs["below"]
        return te.if_then_else(chosen, x[i], _value(attrs["value"], x.dtype))

    return te.compute(x.shape, element, name)
