"""Operators that select by order, position or mask: largest elements, triangles, one-hot vectors."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from autotune.graph.calls import Call, Result
from autotune.graph.frontends.onnx.file import element_type
from autotune.graph.frontends.onnx.importer.activations import with_number
from autotune.graph.frontends.onnx.importer.reductions import first_extreme, reduce_over
from autotune.graph.frontends.onnx.importer.registry import imports
from autotune.graph.frontends.onnx.importer.selection import take_places
from autotune.graph.ir import Array
from search_space.dtypes import FLOATS, numpy_dtype


def moved_last(call: Call, value: str, axis: int) -> tuple[str, tuple[int, ...]]:
    """Moves an axis to the end; also returns the axes of the inverse transposition."""
    rank = len(call.shape(value))
    order = [*(a for a in range(rank) if a != axis), axis]
    if order == list(range(rank)):
        return value, tuple(order)
    return call.add("transpose", [value], axes=tuple(order)), tuple(int(a) for a in np.argsort(order))


def _back(call: Call, value: str, axes: tuple[int, ...]) -> str:
    return value if list(axes) == list(range(len(axes))) else call.add("transpose", [value], axes=axes)


def along(axis: int, rank: int, vector: Array) -> Array:
    """Reshapes a vector to lie along one of `rank` axes."""
    return vector.reshape([-1 if a == axis else 1 for a in range(rank)])


@imports("TopK")
def largest(call: Call) -> list[str]:
    """Computes the first elements of an axis in order, and their indices, from the ranks of all elements."""
    count = int(call.require_array(1, "k").reshape(-1)[0]) if call.has(1) else int(call.attrs["k"])
    axis = int(call.attrs.get("axis", -1)) % len(call.type(0).shape)
    data, back = moved_last(call, call.value(0), axis)
    *outer, extent = call.shape(data)
    ranks = call.add("ranks", [data], largest=bool(call.attrs.get("largest", 1)))
    indices = call.add("first_ranks", [ranks], count=count)
    rows = math.prod(outer)
    begins = (np.arange(rows, dtype=np.int32) * extent).reshape(*outer, 1)
    flat = call.add("add", [indices, call.constant(begins)]) if rows > 1 else indices
    values = call.add("gather", [call.add("reshape", [data], shape=(rows * extent,)), flat], axis=0)
    return [_back(call, values, back), _back(call, call.cast(indices, "int64"), back)]


@imports("OneHot")
def one_hot(call: Call) -> str:
    """Writes, along a new axis, one value at the index and another value elsewhere."""
    depth = int(call.require_array(1, "depth").reshape(-1)[0])
    shape = call.type(0).shape
    axis = int(call.attrs.get("axis", -1)) % (len(shape) + 1)
    narrow = call.type(0).dtype in ("int32", "int8", "uint8", "bool")
    dtype = "int32" if narrow else "int64"  # an index of more than 32 bits stays out of range
    indices = call.cast(call.value(0), dtype)
    turned = with_number(call, "add", indices, depth)
    indices = call.add("where", [call.add("less", [indices, call.scalar(0, indices)]), turned, indices])
    indices = call.add("reshape", [indices], shape=(*shape[:axis], 1, *shape[axis:]))
    numbers = along(axis, len(shape) + 1, np.arange(depth, dtype=numpy_dtype(dtype)))
    hit = call.add("equal", [indices, call.constant(numbers)])
    off, on = (take_places(call, call.value(2), np.array([place]), 0) for place in (0, 1))
    return call.cast(call.add("where", [hit, on, off]), call.type(2).dtype)


@imports("Hardmax")
def hardmax(call: Call) -> str:
    """Writes 1 at the first maximum; before opset 13 over all axes from `axis` on, flattened."""
    value, shape = call.value(0), call.type(0).shape
    old = call.context.opset < 13
    axis = int(call.attrs.get("axis", 1 if old else -1)) % len(shape)
    if old:
        value, axis = call.reshape(value, (math.prod(shape[:axis]), math.prod(shape[axis:]))), 1
    rank, extent = len(call.shape(value)), call.shape(value)[axis]
    place = first_extreme(call, value, axis, "max")
    hit = call.add("equal", [place, call.constant(along(axis, rank, np.arange(extent, dtype=np.int32)))])
    return call.reshape(call.cast(hit, call.type(0).dtype), shape)


@imports("Trilu")
def triangle(call: Call) -> str:
    """Zeroes elements below, or above, a constant diagonal of matrices."""
    value, shape = call.value(0), call.type(0).shape
    diagonal = int(call.require_array(1, "diagonal").reshape(-1)[0]) if call.has(1) else 0
    ones = np.ones(shape[-2:], bool)
    mask = np.triu(ones, diagonal) if call.attrs.get("upper", 1) else np.tril(ones, diagonal)
    return call.add("where", [call.constant(mask), value, call.scalar(0, value)])


@imports("EyeLike")
def eye(call: Call) -> Sequence[Result]:
    """Creates a matrix of the input's shape with ones along a diagonal."""
    shape = call.type(0).shape
    given = call.attrs.get("dtype")
    dtype = call.type(0).dtype if given is None else str(element_type(int(given), call.outputs[0]))
    return [np.eye(shape[0], shape[1], k=int(call.attrs.get("k", 0)), dtype=numpy_dtype(dtype))]


@imports("IsInf")
def is_infinite(call: Call) -> str:
    """Tells for each element whether it is infinite, with one of the requested signs."""
    x = call.value(0)
    call.require(call.type(0).dtype in FLOATS, "must look at floating-point values", f"{call.type(0)}")
    matches = [
        call.add("equal", [x, call.scalar(sign * math.inf, x)])
        for sign, name in ((1, "detect_positive"), (-1, "detect_negative"))
        if call.attrs.get(name, 1)
    ]
    if len(matches) == 2:
        return call.add("logical_or", matches)
    return matches[0] if matches else call.constant(np.zeros(call.type(0).shape, bool))


@imports("Compress")
def compress(call: Call) -> str:
    """Selects elements, or slices of an axis, by a constant mask."""
    value = call.value(0)
    indices = np.flatnonzero(call.require_array(1, "condition"))
    call.require(indices.size > 0, "must leave elements", "a condition that is false everywhere")
    if "axis" not in call.attrs:
        return take_places(call, call.reshape(value, (math.prod(call.shape(value)),)), indices, 0)
    return take_places(call, value, indices, int(call.attrs["axis"]) % len(call.shape(value)))


@imports("ReverseSequence")
def reverse_sequence(call: Call) -> str:
    """Reverses the first elements of each sequence of a batch, as many as its length states."""
    axes = [int(call.attrs.get(name, default)) for name, default in (("batch_axis", 1), ("time_axis", 0))]
    value, shape = call.value(0), call.type(0).shape
    order = [*axes, *(a for a in range(len(shape)) if a not in axes)]
    value = call.add("transpose", [value], axes=tuple(order))
    batch, steps, *inner = call.shape(value)
    lengths = call.add("reshape", [call.cast(call.value(1), "int32")], shape=(batch, 1))
    time = np.arange(steps, dtype=np.int32)[None]
    mirrored = call.add("subtract", [with_number(call, "subtract", lengths, 1), call.constant(time)])
    places = call.add("where", [call.add("less", [call.constant(time), lengths]), mirrored, call.constant(time)])
    rows = call.add("add", [places, call.constant(np.arange(batch, dtype=np.int32)[:, None] * steps)])
    out = call.add("gather", [call.add("reshape", [value], shape=(batch * steps, *inner)), rows], axis=0)
    return call.add("transpose", [out], axes=tuple(int(a) for a in np.argsort(order)))


@imports("TensorScatter")
def written_cache(call: Call) -> str:
    """Writes an update into a part of a cache's axis that begins at a given index per sample, circular if requested."""
    value, shape, size = call.value(0), call.type(0).shape, call.type(1).shape
    axis = int(call.attrs.get("axis", -2)) % len(shape)
    call.require(axis > 0, "must write along another axis than the first", f"axis={axis}")
    extent, steps = shape[axis], size[axis]
    flat = (np.arange(extent, dtype=np.int32))[None]
    if call.has(2):
        begins = call.add("reshape", [call.cast(call.value(2), "int32")], shape=(shape[0], 1))
    else:
        begins = call.constant(np.zeros((shape[0], 1), np.int32))
    step = call.add("subtract", [call.constant(flat), begins])
    zero = call.scalar(0, step)
    if call.attrs.get("mode", b"linear") == b"circular":
        step = call.add("where", [call.add("less", [step, zero]), with_number(call, "add", step, extent), step])
    inside = [call.add("less_equal", [zero, step]), call.add("less", [step, call.scalar(steps, step)])]
    chosen = call.add("logical_and", inside)
    rows = call.add("minimum", [call.add("maximum", [step, zero]), call.scalar(steps - 1, step)])
    rows = call.add("add", [rows, call.constant(np.arange(shape[0], dtype=np.int32)[:, None] * steps)])
    order = [0, axis, *(a for a in range(1, len(shape)) if a != axis)]
    update = call.add("transpose", [call.value(1)], axes=tuple(order))
    rest = call.shape(update)[2:]
    update = call.add("gather", [call.add("reshape", [update], shape=(shape[0] * steps, *rest)), rows], axis=0)
    update = call.add("transpose", [update], axes=tuple(int(a) for a in np.argsort(order)))
    mask = [n if a in (0, axis) else 1 for a, n in enumerate(shape)]
    return call.add("where", [call.add("reshape", [chosen], shape=tuple(mask)), update, value])


@imports("LpNormalization")
def unit_length(call: Call) -> str:
    """Divides by the L1 or L2 norm along an axis; 0 where the norm is 0."""
    value, p = call.value(0), int(call.attrs.get("p", 2))
    call.require(p in (1, 2), "must have `p` 1 or 2", f"p={p}")
    axis = int(call.attrs.get("axis", -1)) % len(call.shape(value))
    sizes = call.add("abs", [value]) if p == 1 else call.add("multiply", [value, value])
    norm = reduce_over(call, sizes, (axis,), "sum", True)
    norm = norm if p == 1 else call.add("sqrt", [norm])
    none = call.add("equal", [norm, call.scalar(0, norm)])
    return call.add("where", [none, call.scalar(0, norm), call.add("divide", [value, norm])])
