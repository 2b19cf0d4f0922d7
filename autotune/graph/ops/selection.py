"""Operations that select: comparisons, conditions, conversions, and rows gathered at computed indices."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from autotune.graph.ops.base import GraphOp, Kind, Tensors, Types, register
from autotune.graph.ops.elementwise import elementwise, from_function
from autotune.graph.types import Array, Attributes
from search_space import te
from search_space.dtypes import numpy_dtype
from search_space.ir.expr import BOOL, DTYPES, INT, Expr, cast, const, eq, logical_and, make

_LOGIC: dict[str, tuple[Callable[..., Any], Callable[..., Array]]] = {
    "equal": (eq, np.equal),
    "less": (lambda x, y: x < y, np.less),
    "less_equal": (lambda x, y: x <= y, np.less_equal),
    "logical_and": (logical_and, np.logical_and),
    "logical_or": (lambda x, y: make("or", x, y), np.logical_or),
    "logical_xor": (lambda x, y: make("ne", x, y), np.logical_xor),
    "logical_not": (lambda x: eq(x, const(False, BOOL)), np.logical_not),
    "where": (te.if_then_else, np.where),
}


def _cast_attributes(attributes: Attributes, types: Types) -> dict[str, Any]:
    dtype = attributes["dtype"]
    if dtype not in DTYPES:
        raise ValueError(f"`dtype` must be one of {', '.join(DTYPES)}, but got dtype={dtype!r}")
    return {"dtype": dtype}


def _cast(attrs: Attributes, x: Expr) -> Expr:
    dtype = attrs["dtype"]
    if dtype == BOOL:
        return make("ne", x, const(0, x.dtype)) if x.dtype != BOOL else x
    if x.dtype == BOOL:
        return te.if_then_else(x, const(1, dtype), const(0, dtype))
    return cast(x, dtype)


def _power(x: Expr, y: Expr) -> Expr:
    """Computes x ** y by logarithms: for x < 0 the sign of an odd y, and NaN if y is not whole.

    As in C's `pow`, `1 ** y` is 1 for every y, and `(-1) ** y` is 1 for infinite y. Minus infinity behaves like
    infinity if y is not whole.
    """
    size, one = te.abs(x), const(1, x.dtype)
    size = te.if_then_else(eq(size, one), one, te.exp(te.log(size) * y))
    half, whole = y * 0.5, eq(te.floor(y), y)
    odd = logical_and(whole, make("ne", te.floor(half), half))
    known = make("or", whole, eq(x, const(-math.inf, x.dtype)))
    signed = te.if_then_else(odd, -size, size)
    real = te.if_then_else(known, signed, const(float("nan"), x.dtype))
    positive = te.if_then_else(x < 0, real, size)
    return te.if_then_else(eq(y, const(0, y.dtype)), one, positive)


def _compute_power(x: Array, y: Array) -> Array:
    with np.errstate(all="ignore"):
        return np.asarray(np.power(x.astype(float), y.astype(float)))


def _gather_attributes(attributes: Attributes, types: Types) -> dict[str, Any]:
    data, indices = types
    axis, rank = int(attributes.get("axis", 0)), len(data.shape)
    if not -rank <= axis < rank:
        raise ValueError(f"`axis` must be one of {rank}, but got axis={axis}")
    if indices.dtype not in ("int32", "int64"):
        raise ValueError(f"indices must be int32 or int64, but got {indices}")
    return {"axis": axis % rank}


def _gather(attrs: Attributes, tensors: Tensors) -> te.Tensor:
    """Gathers slices along an axis; negative indices count from the end, indices out of bounds are clamped."""
    data, indices = tensors
    axis, count = attrs["axis"], len(indices.shape)
    extent = data.shape[axis]

    def body(*index: Any) -> Expr:
        place = cast(indices[tuple(index[axis : axis + count])], INT)
        place = place + te.if_then_else(place < 0, extent, 0)
        place = te.minimum(te.maximum(place, 0), extent - 1)
        return data[(*index[:axis], place, *index[axis + count :])]

    return te.compute((*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :]), body, name="gather")


def _compute_gather(attrs: Attributes, data: Array, indices: Array) -> Array:
    extent = data.shape[attrs["axis"]]
    places = np.where(indices < 0, indices + extent, indices)
    return np.take(data, np.clip(places, 0, extent - 1), attrs["axis"])


register(
    *(from_function(name, *pair) for name, pair in _LOGIC.items()),
    elementwise("cast", _cast, lambda attrs, x: x.astype(numpy_dtype(attrs["dtype"])), _cast_attributes),
    from_function("power", _power, _compute_power),
    GraphOp("gather", Kind.injective, _gather_attributes, _gather, compute=_compute_gather),
)
