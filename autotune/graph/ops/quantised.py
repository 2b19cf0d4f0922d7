"""Operations on numbers of 8 bits and on the int32 sums made of them: exact, but for those from and to floats.

A byte q stands for the number (q - zero) * scale. Scales and zeros are inputs, as weights are: layers that differ in
them alone are one workload. Bytes are unsigned for processors whose dot products take them so, or int8 with a zero of
0 for accelerators. A sum becomes a byte by one product in float32, which all compute alike, or by a shift; the
product is rounded to nearest, halves to even.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from autotune.graph.ops.base import GraphOp, Kind, Tensors, Types, exactly, register
from autotune.graph.ops.elementwise import computed
from autotune.graph.types import Array, Attributes, TensorType
from search_space import te
from search_space.dtypes import FLOATS
from search_space.ir.expr import Expr
from search_space.operators.checks import spread
from search_space.operators.naming import over
from search_space.operators.windows import Window, pad, padded, taps, window_arguments

BYTES = "uint8 or int8"
RANGES = {"uint8": (0, 255), "int8": (-128, 127)}
"""Least and largest byte."""


def typed(*dtypes: str, **defaults: Any) -> Any:
    """A checker of attributes, all optional, for inputs of these dtypes; `a or b` takes either."""
    check = exactly(**defaults)

    def checked(given: Attributes, types: Types) -> dict[str, Any]:
        found = tuple(kind.dtype for kind in types)
        if len(found) != len(dtypes) or any(f not in d.split(" or ") for f, d in zip(found, dtypes, strict=True)):
            raise ValueError(f"inputs must be {', '.join(dtypes)}, but got {', '.join(found) or 'none'}")
        return check(given, types)

    return checked


def exact_scale(scale: float) -> float:
    """The float32 nearest to a scale."""
    return float(np.float32(scale))


def inverse_of(scale: float) -> np.float32:
    """What numbers are multiplied by where they are brought to a scale."""
    return np.float32(1 / exact_scale(scale))


def _quantise(attrs: Attributes, tensors: Tensors) -> te.Tensor:
    """One product is rounded to float32; all else is exact, so that all agree on ties, which go to the even number.

    The zero is added to whole numbers: exactly, but to those that lie beyond all bytes anyway.
    """
    low, high = map(float, RANGES[attrs["dtype"]])

    def byte(x: Expr, inverse: Expr, zero: Expr) -> Expr:
        whole = te.rint(x * inverse) + zero.astype("float32")
        found: Expr = te.minimum(te.maximum(whole, low), high).astype("int32").astype(attrs["dtype"])
        return found

    return computed("quantise", byte, tensors)


def quantised(x: Array, inverse: Array, zero: Array, dtype: str = "uint8") -> Array:
    """The bytes that stand for the numbers nearest to `x`; `inverse` is that of their scale, the zero is a byte."""
    low, high = RANGES[dtype]
    with np.errstate(over="ignore"):
        near = np.rint(x.astype(np.float32) * inverse) + zero.astype(np.float32)
    return within(near, low, high, dtype)


def within(near: Array, low: int, high: int, dtype: str) -> Array:
    """Integers of floats between limits; of NaN the lower limit."""
    return np.asarray(np.fmin(np.fmax(near, low), high).astype(dtype))


def _quantise_linear(attrs: Attributes, tensors: Tensors) -> te.Tensor:
    """As ONNX defines it: one quotient is rounded to float32, and then to a whole number, halves to even."""
    low, high = map(float, RANGES[attrs["dtype"]])

    def byte(x: Expr, scale: Expr, zero: Expr) -> Expr:
        whole = te.rint(x / scale) + zero.astype("float32")
        found: Expr = te.minimum(te.maximum(whole, low), high).astype("int32").astype(attrs["dtype"])
        return found

    return computed("quantise_linear", byte, tensors)


def quantised_linear(x: Array, scale: Array, zero: Array, dtype: str = "uint8") -> Array:
    """The same by a quotient with the scale."""
    low, high = RANGES[dtype]
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        near = np.rint(x.astype(np.float32) / scale) + zero.astype(np.float32)
    return within(near, low, high, dtype)


def _quantise_attributes(given: Attributes, types: Types) -> dict[str, Any]:
    attrs = _with_dtype(typed(" or ".join(FLOATS), "float32", BYTES, dtype="uint8")(given, types))
    return _zero_of_dtype(attrs, types[2])


def _zero_of_dtype(attrs: dict[str, Any], zero: TensorType) -> dict[str, Any]:
    if zero.dtype != attrs["dtype"]:
        raise ValueError(f"the zero must have the `dtype` of the bytes, {attrs['dtype']}, but got {zero.dtype}")
    return attrs


def _with_dtype(attrs: dict[str, Any]) -> dict[str, Any]:
    if attrs["dtype"] not in RANGES:
        raise ValueError(f"`dtype` must be one of {', '.join(RANGES)}, but got dtype={attrs['dtype']!r}")
    return attrs


def dequantised(q: Array, scale: Array, zero: Array) -> Array:
    """The numbers that bytes stand for; the scale is float32, the zero a byte."""
    numbers: Array = (q.astype(np.int32) - zero.astype(np.int32)).astype(np.float32) * scale
    return numbers


def _dequantise(attrs: Attributes, tensors: Tensors) -> te.Tensor:
    def number(q: Expr, scale: Expr, zero: Expr) -> Expr:
        return (q.astype("int32") - zero.astype("int32")).astype("float32") * scale

    return computed("dequantise", number, tensors)


def _requantise(attrs: Attributes, tensors: Tensors) -> te.Tensor:
    low, high, dtype = attrs["low"], attrs["high"], attrs["dtype"]

    def shifted(x: Expr, bias: Expr, shift: Expr) -> Expr:
        return te.minimum(te.maximum((x + bias) >> shift, low), high).astype(dtype)

    def scaled(x: Expr, bias: Expr, scale: Expr, zero: Expr | None = None) -> Expr:
        whole = te.rint((x + bias).astype("float32") * scale)
        whole = whole if zero is None else whole + zero.astype("float32")
        return te.minimum(te.maximum(whole, float(low)), float(high)).astype("int32").astype(dtype)

    return computed("requantise", shifted if tensors[2].dtype == "int32" else scaled, tensors)


def requantised(x: Array, bias: Array, by: Array, low: int, high: int, zero: Array | None = None) -> Array:
    """A sum brought to the scale of bytes: shifted down, or multiplied by a float and rounded, beside a zero."""
    total = x + bias
    found: Array = total >> (by & 31) if by.dtype == np.int32 else np.rint(total.astype(np.float32) * by)
    if zero is not None:
        found = found + zero.astype(np.float32)
    return np.asarray(np.clip(found, low, high))


def _limits(given: Attributes, types: Types) -> dict[str, Any]:
    ends: dict[str, Any] = {"low": 0, "high": 255, "dtype": "uint8"}
    if len(types) == 4:
        attrs = _zero_of_dtype(_with_dtype(typed("int32", "int32", "float32", BYTES, **ends)(given, types)), types[3])
    else:
        attrs = _with_dtype(typed("int32", "int32", "int32 or float32", **ends)(given, types))
    least, most = RANGES[attrs["dtype"]]
    if not least <= attrs["low"] <= attrs["high"] <= most:
        raise ValueError(f"`low` and `high` must be bytes in order, but got low={attrs['low']}, high={attrs['high']}")
    return attrs


def _dequantise_attributes(given: Attributes, types: Types) -> dict[str, Any]:
    attrs: dict[str, Any] = typed(BYTES, "float32", BYTES)(given, types)
    return _same_bytes(attrs, (types[0], types[2]))


def _limit_attributes(given: Attributes, types: Types) -> dict[str, Any]:
    return _same_bytes(typed(BYTES, BYTES, BYTES)(given, types), types)


def _same_bytes(attrs: dict[str, Any], types: Types) -> dict[str, Any]:
    if len({kind.dtype for kind in types}) > 1:
        raise ValueError(f"bytes must have one dtype, but got {', '.join(kind.dtype for kind in types)}")
    return attrs


def _add_dequantised(attrs: Attributes, tensors: Tensors) -> te.Tensor:
    """Written as a difference, as what multiplies and adds at once would not round the product."""

    def added(x: Expr, q: Expr, scale: Expr, zero: Expr) -> Expr:
        return x - (zero.astype("int32") - q.astype("int32")).astype("float32") * scale

    return computed("add_dequantised", added, tensors)


def _add_dequantised_attributes(given: Attributes, types: Types) -> dict[str, Any]:
    attrs: dict[str, Any] = typed(" or ".join(FLOATS), BYTES, "float32", BYTES)(given, types)
    return _same_bytes(attrs, (types[1], types[3]))


def _wide(q: Array, factor: Array) -> Array:
    wide: Array = q.astype(np.int32) * factor
    return wide


_SUM_POOL: dict[str, Any] = {"kernel": 2, "stride": 2, "padding": 0}


def _pool_attributes(given: Attributes, types: Types) -> dict[str, Any]:
    attrs: dict[str, Any] = typed(BYTES, **_SUM_POOL)(given, types)
    if len(types[0].shape) != 4:
        raise ValueError(f"the first input must have 4 dimensions, but got {types[0]}")
    return {**spread(2, kernel=attrs["kernel"], stride=attrs["stride"]), **spread(2, 0, padding=attrs["padding"])}


def _window(attrs: Attributes, shape: tuple[int, ...]) -> Window:
    _, height, width, _ = shape
    return Window.of(window_arguments(2, **attrs, height=height, width=width))


def _sum_pool(attrs: Attributes, tensors: Tensors) -> te.Tensor:
    (data,) = tensors
    window = _window(attrs, data.shape)
    source, within = pad(data, window, 0), window.reduce_axes()

    def body(n: Any, h: Any, w: Any, c: Any) -> te.Reduction:
        return te.sum(source[(n, *window.index((h, w), within), c)].astype("int32"), axis=within)

    shape = (data.shape[0], *window.output, data.shape[-1])
    return te.compute(shape, over(("n", "h", "w", "c"), body), name="sum_pool")


def _summed(attrs: Attributes, data: Array) -> Array:
    window = _window(attrs, data.shape)
    return np.asarray(sum(tap for _, tap in taps(padded(data.astype(np.int32), window), window)))


register(
    GraphOp(
        "quantise",
        Kind.elementwise,
        _quantise_attributes,
        _quantise,
        compute=lambda attrs, x, inverse, zero: quantised(x, inverse, zero, attrs["dtype"]),
    ),
    GraphOp(  # the same by a quotient, as ONNX has it
        "quantise_linear",
        Kind.elementwise,
        _quantise_attributes,
        _quantise_linear,
        compute=lambda attrs, x, scale, zero: quantised_linear(x, scale, zero, attrs["dtype"]),
    ),
    GraphOp(
        "dequantise",
        Kind.elementwise,
        _dequantise_attributes,
        _dequantise,
        compute=lambda attrs, q, scale, zero: dequantised(q, scale, zero),
    ),
    GraphOp(  # what bytes stand for, added to a float
        "add_dequantised",
        Kind.elementwise,
        _add_dequantised_attributes,
        _add_dequantised,
        compute=lambda attrs, x, q, scale, zero: x + dequantised(q, scale, zero),
    ),
    GraphOp(  # a sum as a float
        "dequantise_sum",
        Kind.elementwise,
        typed("int32", "float32"),
        lambda attrs, tensors: computed("dequantise_sum", lambda x, s: x.astype("float32") * s, tensors),
        compute=lambda attrs, x, s: x.astype(np.float32) * s,
    ),
    GraphOp(  # a sum as a byte; a fourth input is the zero that is added to the rounded number
        "requantise",
        Kind.elementwise,
        _limits,
        _requantise,
        compute=lambda attrs, x, bias, by, zero=None: requantised(x, bias, by, attrs["low"], attrs["high"], zero),
    ),
    GraphOp(  # bytes between two others
        "limit",
        Kind.elementwise,
        _limit_attributes,
        lambda attrs, tensors: computed("limit", lambda q, low, high: te.minimum(te.maximum(q, low), high), tensors),
        compute=lambda attrs, q, low, high: np.clip(q, low, high),
    ),
    GraphOp(
        "shift_left",
        Kind.elementwise,
        typed("int32", "int32"),
        lambda attrs, tensors: computed("shift_left", lambda x, shift: x << shift, tensors),
        compute=lambda attrs, x, shift: np.left_shift(x, shift & 31),
    ),
    GraphOp(  # int8 with a zero of 0 as uint8 with a zero of 128, which dot products take
        "offset",
        Kind.elementwise,
        typed("int8"),
        lambda attrs, tensors: computed("offset", lambda q: (q.astype("int32") + 128).astype("uint8"), tensors),
        compute=lambda attrs, q: (q.astype(np.int16) + 128).astype(np.uint8),
    ),
    GraphOp(  # bytes brought to the scale of a sum, a part of theirs
        "widen",
        Kind.elementwise,
        typed(BYTES, "int32"),
        lambda attrs, tensors: computed("widen", lambda q, factor: q.astype("int32") * factor, tensors),
        compute=lambda attrs, q, factor: _wide(q, factor),
    ),
    GraphOp(  # a residual, brought to the scale of a sum, added to it
        "add_widened",
        Kind.elementwise,
        typed("int32", BYTES, "int32"),
        lambda attrs, tensors: computed("add_widened", lambda x, q, s: x + q.astype("int32") * s, tensors),
        compute=lambda attrs, x, q, factor: x + _wide(q, factor),
    ),
    GraphOp("sum_pool2d", Kind.compute, _pool_attributes, _sum_pool, compute=_summed),
)
