"""8-bit numbers: conversions from and to floats, and sums of their products in int32.

Products are of unsigned by signed bytes, for which processors have instructions: bytes of the other signedness, and
their zero, are shifted by 128. Nonzero zeros are subtracted from the sums behind the product.
"""

from __future__ import annotations

import math

import numpy as np

from autotune.graph.calls import Call
from autotune.graph.frontends.onnx.file import element_type
from autotune.graph.frontends.onnx.importer.activations import with_number
from autotune.graph.frontends.onnx.importer.layers import convolution, make_window, product
from autotune.graph.frontends.onnx.importer.reductions import reduce_over
from autotune.graph.frontends.onnx.importer.registry import imports
from autotune.graph.frontends.onnx.importer.selection import repeat_axis
from autotune.graph.ir import Array

_BYTES = {"uint8": (0, 255), "int8": (-128, 127)}


def _along(call: Call, parameter: str, shape: tuple[int, ...]) -> str:
    """Broadcasts a scale or zero to data of `shape`: one for all, per element of an axis, or per block."""
    size = call.shape(parameter)
    if math.prod(size) == 1:
        return call.reshape(parameter, (1,) if shape else ())
    axis, block = int(call.attrs.get("axis", 1)) % len(shape), int(call.attrs.get("block_size", 0))
    if not block:
        return call.reshape(parameter, tuple(shape[axis] if a == axis else 1 for a in range(len(shape))))
    wide = repeat_axis(call, parameter, axis, block, each=True)
    return wide if call.shape(wide) == shape else call.add("slice", [wide], begin=(0,) * len(shape), size=shape)


def _to_bytes(call: Call, numbers: str, zero: str | None, dtype: str) -> str:
    """Rounds to nearest, ties to even, adds a zero and clips to the range of bytes."""
    call.require(dtype in _BYTES, f"must give {' or '.join(_BYTES)}", dtype)
    rounded = call.add("rint", [numbers])
    if zero is not None:
        rounded = call.add("add", [rounded, call.cast(zero, "float32")])
    low, high = _BYTES[dtype]
    limited = call.add("clip", [rounded], low=float(low), high=float(high))
    return call.cast(call.cast(limited, "int32"), dtype)


def _zero_point(call: Call, shape: tuple[int, ...], dtype: str) -> str:
    """Returns the zero for data of `shape`, 0 by default."""
    if call.has(2):
        return _along(call, call.value(2), shape)
    return call.constant(np.zeros(1 if shape else (), dtype))


@imports("QuantizeLinear")
def quantise(call: Call) -> str:
    """Rounds x / scale to the nearest byte, ties to even, plus a zero; for the tensor, an axis or blocks of it."""
    x, shape = call.cast(call.value(0), "float32"), call.type(0).shape
    named = int(call.attrs.get("output_dtype", 0))
    dtype = str(element_type(named, call.outputs[0])) if named else "uint8"
    dtype = call.type(2).dtype if call.has(2) else dtype
    call.require(dtype in _BYTES, f"must give {' or '.join(_BYTES)}", dtype)
    scale = call.cast(_along(call, call.value(1), shape), "float32")
    return call.add("quantise_linear", [x, scale, _zero_point(call, shape, dtype)], dtype=dtype)


@imports("DequantizeLinear")
def dequantise(call: Call) -> str:
    """Computes (q - zero) * scale, for the tensor, an axis or blocks of it, in the dtype of the scale."""
    kind, shape = call.type(0), call.type(0).shape
    call.require(kind.dtype in (*_BYTES, "int32"), f"must read {', '.join(_BYTES)} or int32", f"{kind}")
    scale = call.cast(_along(call, call.value(1), shape), "float32")
    if kind.dtype in _BYTES:
        return call.add("dequantise", [call.value(0), scale, _zero_point(call, shape, kind.dtype)])
    numbers = call.cast(call.value(0), "int32")
    if call.has(2):
        numbers = call.add("subtract", [numbers, call.cast(_along(call, call.value(2), shape), "int32")])
    return call.add("multiply", [call.cast(numbers, "float32"), scale])


def _shift_bytes(call: Call, value: str, zero: str | None, dtype: str) -> tuple[str, str | None]:
    """Converts bytes and their zero (int32; None for 0) to bytes of `dtype`."""
    was = call.context.builder.type(value).dtype
    call.require(was in _BYTES, f"must multiply {' and '.join(_BYTES)}", was)
    wide = None if zero is None else call.cast(zero, "int32")
    if was == dtype:
        array = None if zero is None else call.context.builder.array(zero)
        return value, None if array is not None and not array.any() else wide
    by = 128 if dtype == "uint8" else -128  # the offset between the ranges of int8 and uint8
    value = call.cast(with_number(call, "add", call.cast(value, "int32"), by), dtype)
    return value, call.constant(np.full(1, by, np.int32)) if wide is None else with_number(call, "add", wide, by)


def _column(call: Call, zero: str, rank: int, axis: int) -> str:
    """Broadcasts a zero, or one zero per element of an axis, to the rank of a product."""
    shape = call.shape(zero)
    if math.prod(shape) == 1:
        return call.reshape(zero, (1,))
    if len(shape) > 1:
        return zero
    return call.reshape(zero, tuple(shape[0] if a == axis else 1 for a in range(rank)))


def _products(call: Call, left: str, right: str, zeros: tuple[str | None, str | None]) -> str:
    """Computes (left - its zero) times (right - its zero) in int32, over the last two axes."""
    (a, left_zero), (b, right_zero) = (
        _shift_bytes(call, left, zeros[0], "uint8"),
        _shift_bytes(call, right, zeros[1], "int8"),
    )
    out, depth = product(call, a, b), call.shape(a)[-1]
    rank = len(call.shape(out))
    ranks = len(call.shape(a)), len(call.shape(b))
    call.require(min(ranks) > 1, "must multiply matrices", f"{call.shape(a)} and {call.shape(b)}")
    if left_zero is not None:
        left_zero = _column(call, left_zero, rank, rank - 2)
        sums = reduce_over(call, call.cast(b, "int32"), (ranks[1] - 2,), "sum", True)
        out = call.add("subtract", [out, call.add("multiply", [left_zero, sums])])
    if right_zero is not None:
        right_zero = _column(call, right_zero, rank, rank - 1)
        sums = reduce_over(call, call.cast(a, "int32"), (ranks[0] - 1,), "sum", True)
        if left_zero is not None:
            sums = call.add("subtract", [sums, with_number(call, "multiply", left_zero, depth)])
        out = call.add("subtract", [out, call.add("multiply", [right_zero, sums])])
    return out


def _optional(call: Call, index: int) -> str | None:
    return call.value(index) if call.has(index) else None


@imports("MatMulInteger")
def integer_product(call: Call) -> str:
    """Multiplies bytes less their zeros, in int32."""
    return _products(call, call.value(0), call.value(1), (_optional(call, 2), _optional(call, 3)))


@imports("QLinearMatMul")
def quantised_product(call: Call) -> str:
    """Multiplies bytes with scales, and requantises the product."""
    sums = _products(call, call.value(0), call.value(3), (call.value(2), call.value(5)))
    rank = len(call.shape(sums))
    scales = [call.cast(call.value(place), "float32") for place in (1, 4, 6)]
    left, right, own = (_column(call, s, rank, a) for s, a in zip(scales, (rank - 2, rank - 1, rank - 1), strict=True))
    factor = call.add("divide", [call.add("multiply", [left, right]), own])
    scaled = call.add("multiply", [call.cast(sums, "float32"), factor])
    return _to_bytes(call, scaled, call.value(7), call.type(7).dtype)


def _convolve(call: Call, weight: Array, zeros: tuple[str | None, Array | None]) -> str:
    """Adds a convolution of bytes less their zeros in int32, channels first; the weight and its zero are constants."""
    rank, window = weight.ndim - 2, make_window(call, weight)
    by = -128 if weight.dtype == np.uint8 else 0
    filters = (weight.astype(np.int32) + by).astype(np.int8)
    filter_zero = by + (np.zeros(1, np.int32) if zeros[1] is None else zeros[1].astype(np.int32).reshape(-1))
    data, zero = _shift_bytes(call, call.value(0), zeros[0], "uint8")
    if any(map(any, window.pads)):  # padding represents 0, so it is the zero
        number = call.constant(np.zeros(1, np.int32)) if zero is None else call.reshape(zero, (1,))
        sides = [(0, 0, *side) for side in window.pads]
        data = call.add("pad_with", [data, call.cast(number, "uint8")], before=sides[0], after=sides[1])
    out = convolution(call, data, filters, window.without_padding())
    column = (-1, *[1] * rank)
    if zero is not None:
        sums = filters.sum(axis=tuple(range(1, rank + 2)), dtype=np.int32).reshape(column)
        out = call.add("subtract", [out, call.add("multiply", [call.reshape(zero, (1,)), call.constant(sums)])])
    if filter_zero.any():
        sums = convolution(call, data, np.ones_like(filters), window.without_padding())
        if zero is not None:
            count = math.prod(weight.shape[1:])
            sums = call.add("subtract", [sums, with_number(call, "multiply", call.reshape(zero, (1,)), count)])
        factors = np.broadcast_to(filter_zero, weight.shape[:1]).reshape(column)
        out = call.add("subtract", [out, call.add("multiply", [sums, call.constant(factors.astype(np.int32))])])
    return out


@imports("ConvInteger")
def integer_convolution(call: Call) -> str:
    """Computes a convolution of bytes less their zeros, in int32."""
    zero = call.require_array(3, "zero of the weight") if call.has(3) else None
    return _convolve(call, call.require_array(1, "weight"), (_optional(call, 2), zero))


@imports("QLinearConv")
def quantised_convolution(call: Call) -> str:
    """Computes a convolution of bytes with scales and an int32 bias, and requantises it."""
    weight = call.require_array(3, "weight")
    sums = _convolve(call, weight, (call.value(2), call.require_array(5, "zero of the weight")))
    rank = len(call.shape(sums))
    if call.has(8):
        sums = call.add("add", [sums, _column(call, call.value(8), rank, 1)])
    data, filters, own = (_column(call, call.cast(call.value(place), "float32"), rank, 1) for place in (1, 4, 6))
    factor = call.add("divide", [call.add("multiply", [data, filters]), own])
    scaled = call.add("multiply", [call.cast(sums, "float32"), factor])
    return _to_bytes(call, scaled, call.value(7), call.type(7).dtype)
