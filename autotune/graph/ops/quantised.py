"""Operations on 8-bit numbers and on int32 sums of their products: exact, except those from and to floats.

A byte q represents the number (q - zero) * scale. Scales and zeros are inputs, like weights, so that layers that differ
only in them share a workload. Bytes are unsigned for processors with unsigned dot products, or int8 with a zero of 0
for accelerators. One float32 product, which all targets compute alike, or a shift turns a sum into a byte. The product
is rounded to nearest, ties to even.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from autotune.graph.ops.base import GraphOp, Kind, Tensors, Types, exactly, register
from autotune.graph.ops.elementwise import elementwise, from_function
from autotune.graph.types import Array, Attributes, TensorType
from search_space import te
from search_space.dtypes import FLOATS
from search_space.ir.expr import Expr
from search_space.operators.checks import spread
from search_space.operators.windows import pad, pad_array, slide, taps, window_over

BYTES = "uint8 or int8"
RANGES = {"uint8": (0, 255), "int8": (-128, 127)}
"""Least and largest byte."""


def require_types(*dtypes: str, **defaults: Any) -> Any:
    """Returns a checker of optional attributes for inputs of these dtypes; `a or b` accepts either."""
    check = exactly(**defaults)

    def check_inputs(attributes: Attributes, types: Types) -> dict[str, Any]:
        found = tuple(kind.dtype for kind in types)
        if len(found) != len(dtypes) or any(f not in d.split(" or ") for f, d in zip(found, dtypes, strict=True)):
            raise ValueError(f"inputs must be {', '.join(dtypes)}, but got {', '.join(found) or 'none'}")
        return check(attributes, types)

    return check_inputs


def exact_scale(scale: float) -> float:
    """Rounds a scale to float32."""
    return float(np.float32(scale))


def inverse_scale(scale: float) -> np.float32:
    """Returns the float32 factor that converts numbers to steps of a scale."""
    return np.float32(1 / exact_scale(scale))


def rounded_steps(steps: Expr, zero: Expr, dtype: str) -> Expr:
    """Rounds steps of a scale, ties to even, and adds the zero: a byte of `dtype` as int32.

    Only the product or quotient was rounded to float32; the rest is exact, so that all targets agree on ties. The
    zero is added to whole numbers, which is exact within the range of bytes.
    """
    low, high = map(float, RANGES[dtype])
    whole = te.rint(steps) + zero.astype("float32")
    found: Expr = te.minimum(te.maximum(whole, low), high).astype("int32")
    return found


def quantise_array(x: Array, inverse: Array, zero: Array, dtype: str = "uint8") -> Array:
    """Rounds `x` to bytes; `inverse` is the inverse of their scale, the zero is a byte."""
    low, high = RANGES[dtype]
    with np.errstate(over="ignore"):
        near = np.rint(x.astype(np.float32) * inverse) + zero.astype(np.float32)
    return within(near, low, high, dtype)


def within(near: Array, low: int, high: int, dtype: str) -> Array:
    """Clips floats to limits and converts them to integers; NaN becomes the lower limit."""
    return np.asarray(np.fmin(np.fmax(near, low), high).astype(dtype))


def quantised_linear(x: Array, scale: Array, zero: Array, dtype: str = "uint8") -> Array:
    """Rounds `x` to bytes by a quotient with the scale, as ONNX does; `quantise_array` multiplies by the inverse."""
    low, high = RANGES[dtype]
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        near = np.rint(x.astype(np.float32) / scale) + zero.astype(np.float32)
    return within(near, low, high, dtype)


def _quantise_attributes(attributes: Attributes, types: Types) -> dict[str, Any]:
    attrs = _with_dtype(require_types(" or ".join(FLOATS), "float32", BYTES, dtype="uint8")(attributes, types))
    return _zero_of_dtype(attrs, types[2])


def _zero_of_dtype(attrs: dict[str, Any], zero: TensorType) -> dict[str, Any]:
    if zero.dtype != attrs["dtype"]:
        raise ValueError(f"the zero must have the `dtype` of the bytes, {attrs['dtype']}, but got {zero.dtype}")
    return attrs


def _with_dtype(attrs: dict[str, Any]) -> dict[str, Any]:
    if attrs["dtype"] not in RANGES:
        raise ValueError(f"`dtype` must be one of {', '.join(RANGES)}, but got dtype={attrs['dtype']!r}")
    return attrs


def dequantise_array(q: Array, scale: Array, zero: Array) -> Array:
    """Computes the numbers that bytes represent; the scale is float32, the zero a byte."""
    numbers: Array = (q.astype(np.int32) - zero.astype(np.int32)).astype(np.float32) * scale
    return numbers


def _dequantise(q: Expr, scale: Expr, zero: Expr) -> Expr:
    return (q.astype("int32") - zero.astype("int32")).astype("float32") * scale


def _requantise(attrs: Attributes, x: Expr, bias: Expr, by: Expr, zero: Expr | None = None) -> Expr:
    low, high, dtype = attrs["low"], attrs["high"], attrs["dtype"]
    if by.dtype == "int32":
        return te.minimum(te.maximum((x + bias) >> by, low), high).astype(dtype)
    whole = te.rint((x + bias).astype("float32") * by)
    whole = whole if zero is None else whole + zero.astype("float32")
    return te.minimum(te.maximum(whole, float(low)), float(high)).astype("int32").astype(dtype)


def requantise(x: Array, bias: Array, by: Array, low: int, high: int, zero: Array | None = None) -> Array:
    """Brings a sum to the scale of bytes: shifts it down, or multiplies it by a float, rounds it and adds a zero."""
    total = x + bias
    found: Array = total >> (by & 31) if by.dtype == np.int32 else np.rint(total.astype(np.float32) * by)
    if zero is not None:
        found = found + zero.astype(np.float32)
    return np.asarray(np.clip(found, low, high))


def _limits(attributes: Attributes, types: Types) -> dict[str, Any]:
    ends: dict[str, Any] = {"low": 0, "high": 255, "dtype": "uint8"}
    if len(types) == 4:
        attrs = _zero_of_dtype(
            _with_dtype(require_types("int32", "int32", "float32", BYTES, **ends)(attributes, types)), types[3]
        )
    else:
        attrs = _with_dtype(require_types("int32", "int32", "int32 or float32", **ends)(attributes, types))
    least, most = RANGES[attrs["dtype"]]
    if not least <= attrs["low"] <= attrs["high"] <= most:
        raise ValueError(f"`low` and `high` must be bytes in order, but got low={attrs['low']}, high={attrs['high']}")
    return attrs


def _dequantise_attributes(attributes: Attributes, types: Types) -> dict[str, Any]:
    attrs: dict[str, Any] = require_types(BYTES, "float32", BYTES)(attributes, types)
    return _same_bytes(attrs, (types[0], types[2]))


def _limit_attributes(attributes: Attributes, types: Types) -> dict[str, Any]:
    return _same_bytes(require_types(BYTES, BYTES, BYTES)(attributes, types), types)


def _same_bytes(attrs: dict[str, Any], types: Types) -> dict[str, Any]:
    if len({kind.dtype for kind in types}) > 1:
        raise ValueError(f"bytes must have one dtype, but got {', '.join(kind.dtype for kind in types)}")
    return attrs


def _add_dequantised(x: Expr, q: Expr, scale: Expr, zero: Expr) -> Expr:
    """Subtracts a difference instead of adding a product: a fused multiply-add would not round the product."""
    return x - (zero.astype("int32") - q.astype("int32")).astype("float32") * scale


def _add_dequantised_attributes(attributes: Attributes, types: Types) -> dict[str, Any]:
    attrs: dict[str, Any] = require_types(" or ".join(FLOATS), BYTES, "float32", BYTES)(attributes, types)
    return _same_bytes(attrs, (types[1], types[3]))


_SUM_POOL: dict[str, Any] = {"kernel": 2, "stride": 2, "padding": 0}


def _pool_attributes(attributes: Attributes, types: Types) -> dict[str, Any]:
    attrs: dict[str, Any] = require_types(BYTES, **_SUM_POOL)(attributes, types)
    if len(types[0].shape) != 4:
        raise ValueError(f"the first input must have 4 dimensions, but got {types[0]}")
    return {**spread(2, kernel=attrs["kernel"], stride=attrs["stride"]), **spread(2, 0, padding=attrs["padding"])}


def _sum_pool(attrs: Attributes, tensors: Tensors) -> te.Tensor:
    (data,) = tensors
    window = window_over(data.shape, attrs)

    def sum_bytes(value: Expr, within: list[te.IterVar], channel: Any) -> te.Reduction:
        return te.sum(value.astype("int32"), axis=within)

    return slide(pad(data, window, 0), window, "sum_pool", sum_bytes)


def _compute_sum_pool(attrs: Attributes, data: Array) -> Array:
    window = window_over(data.shape, attrs)
    return np.asarray(sum(tap for _, tap in taps(pad_array(data.astype(np.int32), window), window)))


register(
    elementwise(
        "quantise",
        lambda attrs, x, inverse, zero: rounded_steps(x * inverse, zero, attrs["dtype"]).astype(attrs["dtype"]),
        lambda attrs, x, inverse, zero: quantise_array(x, inverse, zero, attrs["dtype"]),
        _quantise_attributes,
    ),
    elementwise(  # rounding by a quotient, as in ONNX
        "quantise_linear",
        lambda attrs, x, scale, zero: rounded_steps(x / scale, zero, attrs["dtype"]).astype(attrs["dtype"]),
        lambda attrs, x, scale, zero: quantised_linear(x, scale, zero, attrs["dtype"]),
        _quantise_attributes,
    ),
    from_function("dequantise", _dequantise, dequantise_array, _dequantise_attributes),
    from_function(  # the numbers of bytes, added to a float
        "add_dequantised",
        _add_dequantised,
        lambda x, q, scale, zero: x + dequantise_array(q, scale, zero),
        _add_dequantised_attributes,
    ),
    from_function(  # a sum as a float
        "dequantise_sum",
        lambda x, scale: x.astype("float32") * scale,
        lambda x, scale: x.astype(np.float32) * scale,
        require_types("int32", "float32"),
    ),
    elementwise(  # a sum as a byte; a fourth input is the zero that is added to the rounded number
        "requantise",
        _requantise,
        lambda attrs, x, bias, by, zero=None: requantise(x, bias, by, attrs["low"], attrs["high"], zero),
        _limits,
    ),
    # Bytes clipped by two others.
    from_function("limit", lambda q, low, high: te.minimum(te.maximum(q, low), high), np.clip, _limit_attributes),
    from_function(
        "shift_left", lambda x, shift: x << shift, lambda x, shift: x << (shift & 31), require_types("int32", "int32")
    ),
    from_function(  # int8 with a zero of 0 as uint8 with a zero of 128, which dot products take
        "offset",
        lambda q: (q.astype("int32") + 128).astype("uint8"),
        lambda q: (q.astype(np.int16) + 128).astype(np.uint8),
        require_types("int8"),
    ),
    from_function(  # bytes on the finer scale of a sum
        "widen",
        lambda q, factor: q.astype("int32") * factor,
        lambda q, factor: q.astype(np.int32) * factor,
        require_types(BYTES, "int32"),
    ),
    from_function(  # a residual, brought to the scale of a sum, added to it
        "add_widened",
        lambda x, q, factor: x + q.astype("int32") * factor,
        lambda x, q, factor: x + q.astype(np.int32) * factor,
        require_types("int32", BYTES, "int32"),
    ),
    GraphOp("sum_pool2d", Kind.compute, _pool_attributes, _sum_pool, compute=_compute_sum_pool),
)
