"""Axes resized to other extents: each element is a weighted sum of a few neighbours, which tables name."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from autotune.graph.ops.base import GraphOp, Kind, Tensors, Types, freeze, register
from autotune.graph.types import Array, Attributes
from search_space import te
from search_space.ir.expr import FLOATS, INT, Expr, cast

MOST_WRITTEN_OUT = 16
"""Maximum number of neighbours of an element whose sum is unrolled; more are summed in a loop."""


def _attributes(attributes: Attributes, types: Types) -> dict[str, Any]:
    data, *tables = types
    axes = freeze(attributes["axes"])
    rank = len(data.shape)
    if list(axes) != sorted(set(axes)) or not all(0 <= a < rank for a in axes):
        raise ValueError(f"`axes` must rise and be among {rank}, but got axes={list(axes)}")
    if data.dtype not in FLOATS:
        raise ValueError(f"data must be of floating point, but got {data}")
    if len(tables) != 2 * len(axes):
        raise ValueError(f"inputs must be data and two tables for each of {len(axes)} axes, but got {len(types)}")
    for axis, first, weights in zip(axes, tables[::2], tables[1::2], strict=True):
        if first.dtype != "int32" or weights.dtype != "float32":
            raise ValueError(f"tables must be the first neighbours, int32, and float32, but got {first} and {weights}")
        if len(weights.shape) != 2 or first.shape != weights.shape[:1] or weights.shape[1] > data.shape[axis]:
            raise ValueError(
                f"tables of axis {axis} must be (size,) and (size, at most {data.shape[axis]}), "
                f"but got {first} and {weights}"
            )
    return {"axes": axes}


def _resample(attrs: Attributes, tensors: Tensors) -> te.Tensor:
    """Sums over the product of the axes' neighbours; indices from tables are clamped to the data."""
    data, *tables = tensors
    axes, firsts, weights = attrs["axes"], tables[::2], tables[1::2]
    taps = [w.shape[1] for w in weights]
    shape = list(data.shape)
    for axis, first in zip(axes, firsts, strict=True):
        shape[axis] = first.shape[0]

    def weighted(index: Sequence[Any], steps: Sequence[Any]) -> Expr:
        indices = list(index)
        factor: Any = None
        for axis, first, table, count, step in zip(axes, firsts, weights, taps, steps, strict=True):
            at = cast(first[index[axis]], INT)
            indices[axis] = te.minimum(te.maximum(at, 0), data.shape[axis] - count) + step
            weight = table[index[axis], step]
            factor = weight if factor is None else factor * weight
        value: Expr = data[tuple(indices)].astype("float32") * factor
        return value

    def written_out(*index: Any) -> Expr:
        out: Any = None
        for steps in np.ndindex(*taps):
            term = weighted(index, steps)
            out = term if out is None else out + term
        narrow: Expr = out.astype(data.dtype)
        return narrow

    if math.prod(taps) <= MOST_WRITTEN_OUT:
        return te.compute(shape, written_out, name="resample")
    over = [te.reduce_axis((0, count), f"r{place}") for place, count in enumerate(taps)]
    out = te.compute(shape, lambda *index: te.sum(weighted(index, over), axis=over), name="resample")
    return out if data.dtype == "float32" else te.compute(shape, lambda *i: out[i].astype(data.dtype), name="narrow")


def _compute(attrs: Attributes, data: Array, *tables: Array) -> Array:
    out = data.astype(np.float64)
    for axis, first, weights in zip(attrs["axes"], tables[::2], tables[1::2], strict=True):
        count = weights.shape[1]
        places = np.clip(first, 0, data.shape[axis] - count)[:, None] + np.arange(count)
        wide = weights.reshape(*weights.shape, *[1] * (data.ndim - axis - 1))
        out = (np.take(out, places, axis) * wide).sum(axis + 1)
    return out


register(GraphOp("resample", Kind.compute, _attributes, _resample, compute=_compute))
