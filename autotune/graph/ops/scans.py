"""Sums of all elements up to each index of an axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from autotune.graph.ops.base import GraphOp, Kind, Tensors, Types, register
from autotune.graph.types import Array, Attributes
from search_space import te
from search_space.ir.expr import BOOL, FLOATS, Expr, const


def _attributes(attributes: Attributes, types: Types) -> dict[str, Any]:
    (data,) = types
    axis, rank = int(attributes["axis"]), len(data.shape)
    if not -rank <= axis < rank:
        raise ValueError(f"`axis` must be one of {rank}, but got axis={axis}")
    if data.dtype == BOOL:
        raise ValueError(f"data must be numbers, but got {data}")
    return {"axis": axis % rank, **{name: bool(attributes.get(name, False)) for name in ("exclusive", "reverse")}}


def _cumsum(attrs: Attributes, tensors: Tensors) -> te.Tensor:
    """Sums over the whole axis for each element; elements beyond its index count as 0, even NaN and infinity."""
    (data,) = tensors
    axis, dtype = attrs["axis"], data.dtype
    wide = "float32" if dtype in FLOATS else dtype
    r = te.reduce_axis((0, data.shape[axis]), "r")

    def body(*index: Any) -> te.Reduction:
        first, last = (index[axis], r) if attrs["reverse"] else (r, index[axis])
        counted: Expr = first < last if attrs["exclusive"] else first <= last
        value = data[(*index[:axis], r, *index[axis + 1 :])].astype(wide)
        return te.sum(te.if_then_else(counted, value, const(0, wide)), axis=r)

    out = te.compute(data.shape, body, name="cumsum")
    return out if wide == dtype else te.compute(data.shape, lambda *i: out[i].astype(dtype), name="narrow")


def _compute(attrs: Attributes, x: Array) -> Array:
    axis = attrs["axis"]
    turned = np.flip(x, axis) if attrs["reverse"] else x
    wide = turned.astype(turned.dtype if turned.dtype.kind in "iu" else np.float64)
    if attrs["exclusive"]:
        before = np.zeros_like(np.take(wide, [0], axis))
        wide = np.concatenate([before, np.take(wide, np.arange(wide.shape[axis] - 1), axis)], axis)
    sums = np.cumsum(wide, axis, dtype=wide.dtype)
    return np.flip(sums, axis) if attrs["reverse"] else sums


register(GraphOp("cumsum", Kind.compute, _attributes, _cumsum, compute=_compute))
