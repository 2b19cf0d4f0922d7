"""Gather and scatter with index arrays, which are converted to row numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autotune.graph.calls import Call
from autotune.graph.frontends.onnx.importer.reductions import reduce_over
from autotune.graph.frontends.onnx.importer.registry import imports
from autotune.graph.frontends.onnx.importer.selection import take_places
from autotune.graph.ir import Array
from search_space.dtypes import numpy_dtype

MOST_COMPARED = 1 << 26
"""Maximum of rows times updates if the last update of each row is computed at run time."""
MOST_ROUNDS = 64
"""Maximum number of updates of one row that are reduced."""
_REDUCTIONS = {"add": "add", "mul": "multiply", "max": "maximum", "min": "minimum"}


@dataclass(frozen=True)
class _Rows:
    """An array of row numbers: constant, or a value of the graph (int32) of that shape."""

    shape: tuple[int, ...]
    array: Array | None
    value: str = ""


@imports("GatherElements")
def gather_elements(call: Call) -> str:
    """Computes out[i, j] = data[indices[i, j], j] for axis 0, at constant or computed indices."""
    value, shape = call.value(0), call.type(0).shape
    axis, rows = _elements(call, shape)
    if rows.array is not None:  # indices that are equal in all rows select a slice or rows of the axis
        places, plain = call.array(1), [n for a, n in enumerate(rows.shape) if a != axis]
        assert places is not None
        along = np.moveaxis(places, axis, 0).reshape(places.shape[axis], -1)
        if plain == [n for a, n in enumerate(shape) if a != axis] and (along == along[:, :1]).all():
            return take_places(call, value, np.where(along[:, 0] < 0, along[:, 0] + shape[axis], along[:, 0]), axis)
    return _gather_rows(call, call.add("reshape", [value], shape=(math.prod(shape),)), rows, rows.shape)


@imports("GatherND")
def gather_nd(call: Call) -> str:
    """Gathers the parts of data at the positions in the last axis of constant or computed indices."""
    value, shape, indices = call.value(0), call.type(0).shape, call.type(1).shape
    batch, depth = int(call.attrs.get("batch_dims", 0)), indices[-1]
    rows = _rows(call, shape[batch : batch + depth])
    inner = shape[batch + depth :]
    if batch:
        count = math.prod(shape[batch : batch + depth])
        first = np.arange(math.prod(shape[:batch])).reshape(*shape[:batch], *[1] * (len(indices) - 1 - batch)) * count
        rows = _further(call, rows, first)
    count = math.prod(shape[: batch + depth])
    wide = (math.prod(inner),) if inner else ()
    return _gather_rows(call, call.add("reshape", [value], shape=(count, *wide)), rows, (*rows.shape, *inner))


@imports("ScatterND")
def scatter_nd(call: Call) -> str:
    """Replaces parts of data at constant or computed positions, or reduces them with updates."""
    shape, depth = call.type(0).shape, call.type(1).shape[-1]
    count, parts = math.prod(shape[:depth]), bool(shape[depth:])
    return _scatter_rows(call, call.value(0), call.value(2), _rows(call, shape[:depth]), count, parts)


@imports("ScatterElements", "Scatter")
def scatter_elements(call: Call) -> str:
    """Computes out[indices[i, j], j] = updates[i, j] for axis 0, at constant or computed indices."""
    shape = call.type(0).shape
    return _scatter_rows(call, call.value(0), call.value(2), _elements(call, shape)[1], math.prod(shape), False)


@imports("MaxUnpool")
def unpool(call: Call) -> str:
    """Writes maxima to the positions they came from, and zeros elsewhere."""
    shape = call.type(0).shape
    rank = len(shape) - 2
    kernel = call.ints("kernel_shape") or ()
    stride, pads = call.ints("strides", default=[1] * rank) or (), call.ints("pads", default=[0] * 2 * rank) or ()
    fields = zip(shape[2:], stride, kernel, pads[:rank], pads[rank:], strict=True)
    inner = (*shape[:2], *((n - 1) * s - b - a + k for n, s, k, b, a in fields))
    final = tuple(int(n) for n in call.require_array(2, "output shape")) if call.has(2) else inner
    indices = call.array(1)
    if indices is None:
        rows = _Rows(shape, None, call.cast(call.value(1), "int32"))
    else:
        rows = _Rows(shape, indices.astype(np.int64))
    data = call.constant(np.zeros(inner, numpy_dtype(call.type(0).dtype)))
    out = _scatter_rows(call, data, call.value(0), rows, math.prod(inner), False)
    after = tuple(f - n for f, n in zip(final, inner, strict=True))
    call.require(min(after) >= 0, f"must have an output of at least {list(inner)}", list(final))
    return call.add("pad", [out], before=(0,) * len(inner), after=after) if any(after) else out


def _elements(call: Call, shape: tuple[int, ...]) -> tuple[int, _Rows]:
    """Returns the axis, and the flat numbers of elements at indices along it and their own positions on other axes."""
    axis = int(call.attrs.get("axis", 0)) % len(shape)
    extents = call.type(1).shape
    strides = [math.prod(shape[a + 1 :]) for a in range(len(shape))]
    grid = np.indices([1 if a == axis else n for a, n in enumerate(extents)])
    first = sum(grid[a] * strides[a] for a in range(len(shape)) if a != axis) + np.zeros([1] * len(shape), np.int64)
    array = call.array(1)
    if array is not None:
        return axis, _Rows(extents, _inside(call, array, shape[axis]) * strides[axis] + first)
    places = _clamp_indices(call, np.array([shape[axis]], np.int32))
    if strides[axis] > 1:
        places = call.add("multiply", [places, call.constant(np.array([strides[axis]], np.int32))])
    return axis, _further(call, _Rows(extents, None, places), first)


def _rows(call: Call, extents: Sequence[int]) -> _Rows:
    """Returns the numbers of the parts of data at the positions in the last axis of the indices."""
    *outer, depth = call.type(1).shape
    call.require(depth == len(extents), f"must have indices of at most {len(extents)} axes", f"{depth}")
    strides = np.array([math.prod(extents[a + 1 :]) for a in range(depth)])
    array = call.array(1)
    if array is not None:
        return _Rows(tuple(outer), (_inside(call, array, np.array(extents)) * strides).sum(-1))
    numbers = _clamp_indices(call, np.array(extents, np.int32))
    if depth > 1:
        numbers = call.add("multiply", [numbers, call.constant(strides.astype(np.int32))])
        numbers = reduce_over(call, numbers, (len(outer),), "sum", True)
    return _Rows(tuple(outer), None, call.add("reshape", [numbers], shape=tuple(outer)))


def _inside(call: Call, indices: Array, extent: int | Array) -> Array:
    """Checks constant indices and wraps negative ones."""
    good = bool(((indices >= -np.asarray(extent)) & (indices < extent)).all())
    call.require(good, f"must have indices within {extent}", f"{indices.min()} to {indices.max()}")
    return np.where(indices < 0, indices + extent, indices).astype(np.int64)


def _clamp_indices(call: Call, extents: Array) -> str:
    """Converts computed indices to int32; negative ones count from the end, indices out of bounds are clamped."""
    indices = call.value(1)
    dtype = numpy_dtype(call.type(1).dtype)
    zero, most = call.constant(np.zeros(1, dtype)), call.constant((extents - 1).astype(dtype))
    turned = call.add("add", [indices, call.constant(extents.astype(dtype))])
    indices = call.add("where", [call.add("less", [indices, zero]), turned, indices])
    # Clamp before the cast: the lower half of a 64-bit index out of bounds may be in bounds.
    return call.cast(call.add("minimum", [call.add("maximum", [indices, zero]), most]), "int32")


def _further(call: Call, rows: _Rows, first: Array) -> _Rows:
    """Adds `first` to the row numbers."""
    if rows.array is not None:
        return _Rows(rows.shape, rows.array + first)
    if not first.any():
        return rows
    return _Rows(rows.shape, None, call.add("add", [rows.value, call.constant(first.astype(np.int32))]))


def _gather_rows(call: Call, data: str, rows: _Rows, final: tuple[int, ...]) -> str:
    if rows.array is not None:
        out = take_places(call, data, rows.array, 0)
    else:
        out = call.add("gather", [data, rows.value], axis=0)
    return call.reshape(out, final)


def _scatter_rows(call: Call, data: str, updates: str, rows: _Rows, count: int, parts: bool) -> str:
    """Replaces `rows` of the data's `count` rows by the updates' rows; `parts`: rows have more than one element."""
    shape, kind = call.shape(data), call.attrs.get("reduction", b"none")
    reduction, total = bytes(kind).decode(), math.prod(rows.shape)
    known = reduction == "none" or reduction in _REDUCTIONS
    call.require(known, "must have a known reduction", f"reduction={reduction!r}")
    wide = (math.prod(shape) // count,) if parts else ()
    data = call.add("reshape", [data], shape=(count, *wide))
    updates = call.add("reshape", [updates], shape=(total, *wide))
    if rows.array is not None:
        for round_updates in _rounds(call, rows.array.reshape(-1), count, reduction):
            chosen = take_places(call, updates, np.maximum(round_updates, 0), 0)
            if reduction != "none":
                chosen = call.add(_REDUCTIONS[reduction], [data, chosen])
            mask = (round_updates >= 0).reshape(count, *[1] * len(wide))
            data = chosen if mask.all() else call.add("where", [call.constant(mask), chosen, data])
        return call.add("reshape", [data], shape=shape)
    call.require(
        reduction == "none", "must have constant indices where updates are reduced", f"reduction={reduction!r}"
    )
    few = count * total <= MOST_COMPARED
    call.require(few, f"must compare at most {MOST_COMPARED} pairs of rows and computed indices", f"{count} x {total}")
    flat = call.add("reshape", [rows.value], shape=(1, total))
    numbers = call.constant(np.arange(count, dtype=np.int32)[:, None])
    order, none = np.arange(total, dtype=np.int32)[None], np.full((1, 1), -1, np.int32)
    found = call.add("equal", [flat, numbers])
    found = call.add("where", [found, call.constant(order), call.constant(none)])
    last = call.add("reshape", [reduce_over(call, found, (1,), "max", True)], shape=(count,))
    chosen = call.add("gather", [updates, call.add("maximum", [last, call.constant(np.zeros(1, np.int32))])], axis=0)
    hit = call.add("less_equal", [call.constant(np.zeros(1, np.int32)), last])
    hit = call.add("reshape", [hit], shape=(count, *[1] * len(wide)))
    return call.add("reshape", [call.add("where", [hit, chosen, data])], shape=shape)


def _rounds(call: Call, flat: Array, count: int, reduction: str) -> list[Array]:
    """Lists for each row its update, or -1; in several rounds if several updates are reduced into one row."""
    if reduction == "none":
        occurrence = np.zeros(flat.size, np.int64)
    else:
        order = np.argsort(flat, kind="stable")
        runs = np.r_[True, np.diff(flat[order]) != 0]
        occurrence = np.empty(flat.size, np.int64)
        occurrence[order] = np.arange(flat.size) - np.flatnonzero(runs)[np.cumsum(runs) - 1]
    most = int(occurrence.max()) + 1
    call.require(most <= MOST_ROUNDS, f"must reduce a place with at most {MOST_ROUNDS} updates", f"{most}")
    rounds = []
    for number in range(most):
        places = np.full(count, -1)
        np.maximum.at(places, flat[occurrence == number], np.flatnonzero(occurrence == number))
        rounds.append(places)
    return rounds
