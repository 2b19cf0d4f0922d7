"""Operations on numbers of 8 bits and on the int32 sums made of them: exact, but for those from and to floats.

A byte q stands for the number (q - zero) * 2**exponent. Bytes are unsigned for processors whose dot products take them
so, or int8 with a zero of 0 for accelerators. Scales are powers of two, so that bringing one to another is a shift;
roundings are to nearest, halves upwards.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from autotune.graph.ir import Array, Attributes
from autotune.graph.ops.base import GraphOp, Kind, Tensors, Types, exactly, register
from autotune.graph.ops.elementwise import computed
from search_space import te
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


def _quantise(attrs: Attributes, tensors: Tensors) -> te.Tensor:
    """Every step is exact in float32 once the number is within the range, so that all agree on ties."""
    scale, zero = 2.0 ** -attrs["exponent"], attrs["zero"]
    low, high = map(float, RANGES[attrs["dtype"]])

    def byte(x: Expr) -> Expr:
        near = te.minimum(te.maximum(x * scale, -256.0), 256.0)
        rounded = te.floor(te.floor(near * 2.0) * 0.5 + (0.5 + zero))
        return te.minimum(te.maximum(rounded, low), high).astype("int32").astype(attrs["dtype"])

    return computed("quantise", byte, tensors)


def quantised(x: Array, exponent: int, zero: int, dtype: str = "uint8") -> Array:
    """The bytes that stand for the numbers nearest to `x`."""
    near: Array = np.clip(np.floor(np.ldexp(x.astype(np.float64), -exponent) + 0.5) + zero, *RANGES[dtype])
    return near.astype(dtype)


def _quantise_attributes(given: Attributes, types: Types) -> dict[str, Any]:
    return _with_dtype(typed("float32", exponent=0, zero=0, dtype="uint8")(given, types))


def _with_dtype(attrs: dict[str, Any]) -> dict[str, Any]:
    if attrs["dtype"] not in RANGES:
        raise ValueError(f"`dtype` must be one of {', '.join(RANGES)}, but got dtype={attrs['dtype']!r}")
    return attrs


def dequantised(q: Array, exponent: int, zero: int) -> Array:
    """The numbers that bytes stand for."""
    numbers: Array = np.ldexp(q.astype(np.float32) - np.float32(zero), exponent)
    return numbers


def _dequantise(attrs: Attributes, tensors: Tensors) -> te.Tensor:
    scale, zero = 2.0 ** attrs["exponent"], attrs["zero"]
    return computed("dequantise", lambda q: (q.astype("int32") - zero).astype("float32") * scale, tensors)


def _requantise(attrs: Attributes, tensors: Tensors) -> te.Tensor:
    def byte(x: Expr, bias: Expr, shift: Expr) -> Expr:
        return te.minimum(te.maximum((x + bias) >> shift, attrs["low"]), attrs["high"]).astype(attrs["dtype"])

    return computed("requantise", byte, tensors)


def _limits(given: Attributes, types: Types) -> dict[str, Any]:
    attrs = _with_dtype(typed("int32", "int32", "int32", low=0, high=255, dtype="uint8")(given, types))
    least, most = RANGES[attrs["dtype"]]
    if not least <= attrs["low"] <= attrs["high"] <= most:
        raise ValueError(f"`low` and `high` must be bytes in order, but got low={attrs['low']}, high={attrs['high']}")
    return attrs


def _wide(x: Array, shift: Array) -> Array:
    wide: Array = np.left_shift(x.astype(np.int32), shift & 31)
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
        compute=lambda attrs, x: quantised(x, attrs["exponent"], attrs["zero"], attrs["dtype"]),
    ),
    GraphOp(
        "dequantise",
        Kind.elementwise,
        typed(BYTES, exponent=0, zero=0),
        _dequantise,
        compute=lambda attrs, q: dequantised(q, attrs["exponent"], attrs["zero"]),
    ),
    GraphOp(  # a sum as a float; the scale holds powers of two
        "dequantise_sum",
        Kind.elementwise,
        typed("int32", "float32"),
        lambda attrs, tensors: computed("dequantise_sum", lambda x, s: x.astype("float32") * s, tensors),
        compute=lambda attrs, x, s: x.astype(np.float32) * s,
    ),
    GraphOp(  # a sum as a byte
        "requantise",
        Kind.elementwise,
        _limits,
        _requantise,
        compute=lambda attrs, x, bias, shift: np.clip((x + bias) >> (shift & 31), attrs["low"], attrs["high"]),
    ),
    GraphOp(
        "shift_left",
        Kind.elementwise,
        typed("int32", "int32"),
        lambda attrs, tensors: computed("shift_left", lambda x, shift: x << shift, tensors),
        compute=lambda attrs, x, shift: _wide(x, shift),
    ),
    GraphOp(  # int8 with a zero of 0 as uint8 with a zero of 128, which dot products take
        "offset",
        Kind.elementwise,
        typed("int8"),
        lambda attrs, tensors: computed("offset", lambda q: (q.astype("int32") + 128).astype("uint8"), tensors),
        compute=lambda attrs, q: (q.astype(np.int16) + 128).astype(np.uint8),
    ),
    GraphOp(  # bytes brought to a finer scale
        "widen",
        Kind.elementwise,
        typed(BYTES, "int32"),
        lambda attrs, tensors: computed("widen", lambda q, shift: q.astype("int32") << shift, tensors),
        compute=lambda attrs, q, shift: _wide(q, shift),
    ),
    GraphOp(  # a residual, brought to the scale of a sum, added to it
        "add_widened",
        Kind.elementwise,
        typed("int32", BYTES, "int32"),
        lambda attrs, tensors: computed("add_widened", lambda x, q, s: x + (q.astype("int32") << s), tensors),
        compute=lambda attrs, x, q, shift: x + _wide(q, shift),
    ),
    GraphOp("sum_pool2d", Kind.compute, _pool_attributes, _sum_pool, compute=_summed),
)
