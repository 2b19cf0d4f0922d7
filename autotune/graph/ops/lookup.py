"""Operations whose indices are values: gathering by an index tensor, the place of the largest element."""

from __future__ import annotations

from typing import Any

import numpy as np

from autotune.graph.ir import Array, Attributes
from autotune.graph.ops.base import GraphOp, Kind, Tensors, Types, register
from search_space import te
from search_space.ir.expr import Expr


def _axis(given: Attributes, types: Types) -> int:
    axis, rank = given.get("axis", 0), len(types[0].shape)
    if not -rank <= axis < rank:
        raise ValueError(f"`axis` must be one of {rank}, but got axis={axis}")
    return int(axis % rank)


def _gather_attributes(given: Attributes, types: Types) -> dict[str, Any]:
    if len(types) != 2 or types[1].dtype not in ("int32", "int64"):
        raise ValueError(f"inputs must be data and indices of int32 or int64, but got {', '.join(map(str, types))}")
    return {"axis": _axis(given, types)}


def _gather(attrs: Attributes, tensors: Tensors) -> te.Tensor:
    """Negative indices count from the end; what lies outside all the same reads the nearest element."""
    data, indices = tensors
    axis, inner = attrs["axis"], len(indices.shape)
    extent = data.shape[axis]

    def body(*index: Any) -> Expr:
        place = indices[tuple(index[axis : axis + inner])].astype("int64")
        wrapped = te.if_then_else(place < 0, place + extent, place)
        inside = te.minimum(te.maximum(wrapped, 0), extent - 1)
        return data[(*index[:axis], inside, *index[axis + inner :])]

    return te.compute((*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :]), body, name="gather")


def _gathered(attrs: Attributes, data: Array, indices: Array) -> Array:
    extent = data.shape[attrs["axis"]]
    places = np.clip(np.where(indices < 0, indices + extent, indices), 0, extent - 1)
    return np.take(data, places, attrs["axis"])


def _arg_attributes(given: Attributes, types: Types) -> dict[str, Any]:
    if len(types) != 1 or len(types[0].shape) < 2:
        raise ValueError(f"the input must have at least 2 dimensions, but got {', '.join(map(str, types))}")
    return {"axis": _axis(given, types), "last": bool(given.get("last", False))}


def _arg_max(attrs: Attributes, tensors: Tensors) -> te.Tensor:
    """The first place, or the last one, of the largest element along an axis, which the output does not have."""
    (x,) = tensors
    axis = attrs["axis"]
    extent = x.shape[axis]
    shape = (*x.shape[:axis], *x.shape[axis + 1 :])
    r, q = te.reduce_axis((0, extent), "r"), te.reduce_axis((0, extent), "r")
    largest = te.compute(shape, lambda *i: te.max(x[(*i[:axis], r, *i[axis:])], axis=r), name="maximum")

    def place(*i: Any) -> te.Reduction:
        here = te.eq(x[(*i[:axis], q, *i[axis:])], largest[i])
        if attrs["last"]:
            return te.max(te.if_then_else(here, q.expr, -1), axis=q)
        return te.min(te.if_then_else(here, q.expr, extent), axis=q)

    return te.compute(shape, place, name="arg_max")


def _arg_max_reference(attrs: Attributes, x: Array) -> Array:
    axis = attrs["axis"]
    if attrs["last"]:
        return np.asarray(x.shape[axis] - 1 - np.flip(x, axis).argmax(axis))
    return np.asarray(x.argmax(axis))


register(
    GraphOp("gather", Kind.injective, _gather_attributes, _gather, compute=_gathered),
    GraphOp("arg_max", Kind.compute, _arg_attributes, _arg_max, compute=_arg_max_reference),
)
