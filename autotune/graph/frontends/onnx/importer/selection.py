"""Comparisons, conditions, conversions, and parts of arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from autotune.graph.calls import Call, Result
from autotune.graph.frontends.onnx.file import element_type
from autotune.graph.frontends.onnx.importer.registry import imports
from autotune.graph.ir import Array
from search_space.dtypes import numpy_dtype
from search_space.ir.expr import DTYPES, FLOATS

_MIRROR_OPS = {"Greater": "less", "GreaterOrEqual": "less_equal"}


@imports(*_MIRROR_OPS)
def compare_swapped(call: Call) -> str:
    """Compares the operands in exchanged order."""
    return call.add(_MIRROR_OPS[call.op], [call.value(1), call.value(0)])


@imports("IsNaN")
def is_nan(call: Call) -> str:
    """Tells for each element whether it is NaN."""
    call.require(call.type(0).dtype in FLOATS, "must look at floating-point values", f"{call.type(0)}")
    return nan_in(call, call.value(0))


def nan_in(call: Call, x: str) -> str:
    """Tells for each element of a value of the graph whether it is NaN: it differs from itself."""
    return call.add("logical_not", [call.add("equal", [x, x])])


@imports("Cast")
def cast(call: Call) -> str:
    """Converts to another dtype."""
    dtype = str(element_type(int(call.attrs["to"]), call.outputs[0]))
    call.require(dtype in DTYPES, f"must convert to one of {', '.join(DTYPES)}", f"to={dtype}")
    return call.cast(call.value(0), dtype)


@imports("CastLike")
def cast_like(call: Call) -> Sequence[Result]:
    """Converts to the dtype of another value, whose elements do not matter."""
    array, dtype = call.array(0), call.type(1).dtype
    call.require(dtype in DTYPES, f"must convert to one of {', '.join(DTYPES)}", f"{dtype}")
    return [call.cast(call.value(0), dtype) if array is None else array.astype(numpy_dtype(dtype))]


@imports("Pow")
def power(call: Call) -> str:
    """Raises to powers, by multiplication or roots if the exponent is a small constant."""
    x = call.value(0)
    call.require(call.type(0).dtype in FLOATS, "must raise floating-point values", f"{call.type(0)}")
    exponent = call.array(1)
    number = float(exponent.reshape(-1)[0]) if exponent is not None and exponent.size == 1 else None
    if exponent is not None and exponent.ndim > len(call.shape(x)):
        x = call.reshape(x, (*[1] * (exponent.ndim - len(call.shape(x))), *call.shape(x)))
    if number in (1.0, 2.0, 3.0):
        out = x
        for _ in range(int(number) - 1):
            out = call.add("multiply", [out, x])
        return out
    if number in (0.5, -0.5):
        return call.add("sqrt" if number > 0 else "rsqrt", [x])
    if number == -1.0:
        return call.add("divide", [call.scalar(1.0, x), x])
    return call.add("power", [x, call.cast(call.value(1), call.type(0).dtype)])


@imports("Reciprocal")
def reciprocal(call: Call) -> str:
    """Computes 1 / x."""
    x = call.value(0)
    return call.add("divide", [call.scalar(1.0, x), x])


@imports("Ceil")
def ceil(call: Call) -> str:
    """Computes -floor(-x)."""
    return call.add("negative", [call.add("floor", [call.add("negative", [call.value(0)])])])


@imports("Sign")
def sign(call: Call) -> str:
    """Computes -1, 0 or 1; NaN for NaN."""
    x = call.value(0)
    numbers = sign_of_numbers(call)
    return call.add("where", [nan_in(call, x), x, numbers]) if call.type(0).dtype in FLOATS else numbers


def sign_of_numbers(call: Call) -> str:
    """Computes -1, 0 or 1; 0 for NaN."""
    x = call.value(0)
    zero, dtype = call.scalar(0.0, x), call.type(0).dtype
    sides = [call.add("cast", [call.add("less", pair)], dtype=dtype) for pair in ([zero, x], [x, zero])]
    return call.add("subtract", sides)


def take_places(call: Call, value: str, indices: Array, axis: int) -> str:
    """Selects constant indices of an axis, none of them negative: a slice if they are evenly spaced."""
    shape = call.shape(value)
    flat = indices.reshape(-1)
    steps = set(np.diff(flat).tolist())
    if len(steps) <= 1 and 0 not in steps:
        begin = tuple(int(flat[0]) if a == axis else 0 for a in range(len(shape)))
        size = tuple(flat.size if a == axis else n for a, n in enumerate(shape))
        step = tuple(int(steps.copy().pop()) if a == axis and steps else 1 for a in range(len(shape)))
        if begin != (0,) * len(shape) or size != shape or set(step) != {1}:
            value = call.add("slice", [value], begin=begin, size=size, step=step)
    else:
        value = call.add("gather", [value, call.constant(flat.astype(np.int32))], axis=axis)
    final = (*shape[:axis], *indices.shape, *shape[axis + 1 :])
    return call.reshape(value, final)


@imports("Gather")
def gather(call: Call) -> str:
    """Gathers slices along an axis at constant or computed indices."""
    value, rank = call.value(0), len(call.type(0).shape)
    axis = int(call.attrs.get("axis", 0)) % rank
    extent = call.type(0).shape[axis]
    indices = call.array(1)
    if indices is None:
        return call.add("gather", [value, call.value(1)], axis=axis)
    inside = bool(((indices >= -extent) & (indices < extent)).all())
    call.require(inside, f"must have indices within {extent}", f"{indices.min()} to {indices.max()}")
    return take_places(call, value, np.where(indices < 0, indices + extent, indices), axis)


@imports("Slice")
def part(call: Call) -> str:
    """Slices between constants, which are attributes in old opsets."""
    value = call.value(0)
    shape = call.shape(value)
    starts, ends = call.ints("starts", 1) or (), call.ints("ends", 2) or ()
    axes = call.ints("axes", 3, default=range(len(starts))) or ()
    steps = call.ints("steps", 4, default=[1] * len(starts)) or ()
    begin, size, step = [0] * len(shape), list(shape), [1] * len(shape)
    for axis, *ends_and_step in zip(axes, starts, ends, steps, strict=True):
        places = range(shape[axis])[slice(*ends_and_step)]
        call.require(len(places) > 0, "must leave elements", f"shape={shape}, slice={ends_and_step}, axis={axis}")
        begin[axis], size[axis], step[axis] = places.start, len(places), places.step
    return call.add("slice", [value], begin=tuple(begin), size=tuple(size), step=tuple(step))


@imports("Split")
def split(call: Call) -> list[Result]:
    """Splits along an axis, into equal parts unless sizes are given; a part may be empty."""
    value = call.value(0)
    shape = call.shape(value)
    axis = int(call.attrs.get("axis", 0)) % len(shape)
    count = int(call.attrs.get("num_outputs", len(call.outputs)))
    whole = math.ceil(shape[axis] / count)
    equal = [min(whole, shape[axis] - whole * i) for i in range(count)]
    sizes = call.ints("split", 1, default=equal) or ()
    out: list[Result] = []
    start = 0
    for size in sizes:
        begin = tuple(start if a == axis else 0 for a in range(len(shape)))
        extents = tuple(size if a == axis else n for a, n in enumerate(shape))
        none = np.zeros(extents, numpy_dtype(call.type(0).dtype))
        out.append(call.add("slice", [value], begin=begin, size=extents) if size else none)
        start += size
    return out


@imports("Expand")
def expand(call: Call) -> str:
    """Broadcasts to a constant shape, in which 1 means the input's extent."""
    value = call.value(0)
    wanted = tuple(int(n) for n in call.require_array(1, "shape").reshape(-1))
    return call.broadcast(value, np.broadcast_shapes(call.shape(value), wanted))


@imports("Tile")
def tile(call: Call) -> str:
    """Repeats along every axis."""
    value = call.value(0)
    repeats = [int(n) for n in call.require_array(1, "repeats").reshape(-1)]
    for axis, count in enumerate(repeats):
        call.require(count > 0, "must repeat at least once", f"repeats={repeats}")
        value = repeat_axis(call, value, axis, count)
    return value


def repeat_axis(call: Call, value: str, axis: int, count: int, each: bool = False) -> str:
    """Repeats an axis `count` times, or each of its elements."""
    if count == 1:
        return value
    shape = call.shape(value)
    place = axis + 1 if each else axis
    wide = (*shape[:place], 1, *shape[place:])
    full = (*shape[:place], count, *shape[place:])
    out = call.add("broadcast_to", [call.add("reshape", [value], shape=wide)], shape=full)
    return call.add("reshape", [out], shape=(*shape[:axis], shape[axis] * count, *shape[axis + 1 :]))
