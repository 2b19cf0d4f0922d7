"""Order of elements: the rank of each element in its row, and the indices of the elements with the first ranks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from autotune.graph.ops.base import GraphOp, Kind, Tensors, Types, register
from autotune.graph.types import Array, Attributes
from search_space import te
from search_space.ir.expr import BOOL, FLOATS, Expr, const, eq, lift, make
from search_space.tags import Tag

MOST_COMPARED = 1 << 28
"""Maximum number of pairs of elements compared to rank a tensor."""


def _ranks_attributes(attributes: Attributes, types: Types) -> dict[str, Any]:
    (data,) = types
    if not data.shape or data.dtype == BOOL:
        raise ValueError(f"data must be numbers in rows, but got {data}")
    pairs = data.size * data.shape[-1]
    if pairs > MOST_COMPARED:
        raise ValueError(f"ranks must compare at most {MOST_COMPARED} pairs of elements, but {data} has {pairs}")
    return {"largest": bool(attributes.get("largest", True))}


def _ranks(attrs: Attributes, tensors: Tensors) -> te.Tensor:
    """Counts for each element those of its row that precede it: more extreme ones, and equal ones with a lower index.

    NaN is greater than all numbers, and equals NaN.
    """
    (data,) = tensors
    other = te.reduce_axis((0, data.shape[-1]), "other")

    keys, order = _with_order(data, attrs["largest"]) if data.dtype in FLOATS else (data, None)

    def body(*index: Any) -> te.Reduction:
        there = (*index[:-1], other)
        mine, theirs = keys[index], keys[there]
        beyond = mine < theirs if attrs["largest"] else theirs < mine
        earlier = other < index[-1] if order is None else order[there] < order[index]
        before = make("or", beyond, te.all(eq(theirs, mine), earlier))
        return te.sum(te.if_then_else(before, const(1, "int32"), const(0, "int32")), axis=other)

    return te.compute(data.shape, body, name="ranks")


def _with_order(data: te.Tensor, largest: bool) -> tuple[te.Tensor, te.Tensor]:
    """Computes keys that compare as the elements do, with NaN as infinity, and an order among equal keys.

    NaN precedes infinity, or follows it, because its order lies outside the row's indices. Both results are
    materialised, as all elements of a row read each of them.
    """

    def key(*index: Any) -> Expr:
        x = data[index]
        return te.if_then_else(make("ne", x, x), const(math.inf, data.dtype), x)

    def define_index(*index: Any) -> Expr:
        x, at, beyond = data[index], lift(index[-1]).astype("int32"), data.shape[-1]
        return te.if_then_else(make("ne", x, x), at - beyond if largest else at + beyond, at)

    return te.compute(data.shape, key, "keys", Tag.PAD), te.compute(data.shape, define_index, "order", Tag.PAD)


def _compute_ranks(attrs: Attributes, data: Array) -> Array:
    if data.dtype.kind in "iu":
        keys = data.astype(np.int64)
        last, nan = (~keys if attrs["largest"] else keys), np.zeros(data.shape, bool)
    else:
        numbers = data.astype(np.float64)
        nan = np.isnan(numbers) != attrs["largest"]
        last = np.where(np.isnan(numbers), 0.0, -numbers if attrs["largest"] else numbers)
    order = np.lexsort((last, nan), axis=-1)
    return np.argsort(order, -1, kind="stable").astype(np.int32)


def _first_attributes(attributes: Attributes, types: Types) -> dict[str, Any]:
    (ranks,) = types
    count = int(attributes["count"])
    if ranks.dtype != "int32" or not ranks.shape or not 1 <= count <= ranks.shape[-1]:
        raise ValueError(f"`count` must be 1 to the length of rows of int32, but got count={count} of {ranks}")
    return {"count": count}


def _first(attrs: Attributes, tensors: Tensors) -> te.Tensor:
    """Computes the indices of ranks 0, 1, ... in each row; each rank occurs once."""
    (ranks,) = tensors
    place = te.reduce_axis((0, ranks.shape[-1]), "place")

    def body(*index: Any) -> te.Reduction:
        found = eq(ranks[(*index[:-1], place)], lift(index[-1]).astype("int32"))
        return te.sum(te.if_then_else(found, lift(place).astype("int32"), const(0, "int32")), axis=place)

    return te.compute((*ranks.shape[:-1], attrs["count"]), body, name="first")


def _firsts(attrs: Attributes, ranks: Array) -> Array:
    return np.argsort(ranks, -1, kind="stable")[..., : attrs["count"]].astype(np.int32)


register(
    GraphOp("ranks", Kind.compute, _ranks_attributes, _ranks, compute=_compute_ranks),
    GraphOp("first_ranks", Kind.compute, _first_attributes, _first, compute=_firsts),
)
