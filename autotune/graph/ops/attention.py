"""Attention: softmax of the products of queries and keys, times the values, without the softmax in memory."""

from __future__ import annotations

import numpy as np

from autotune.graph.ops.base import GraphOp, Kind, Tensors, at, exactly, register
from autotune.graph.types import Array, Attributes
from search_space import te


def _attention(attrs: Attributes, tensors: Tensors) -> te.Tensor:
    """Queries (b, m, k), keys (b, k, n), values (b, n, d), and what is added to the scores and broadcasts to (b, m, n).

    The sums of a row divide what the values add up to, and not its scores: those are many more.
    """
    queries, keys, values, *more = tensors
    if any(len(t.shape) != 3 for t in (queries, keys, values)):
        ranks = [len(t.shape) for t in (queries, keys, values)]
        raise ValueError(f"`inputs` must have 3 dimensions each, but got {ranks}")
    (batch, m, k), n, d = queries.shape, keys.shape[-1], values.shape[-1]
    if keys.shape != (batch, k, n) or values.shape[:2] != (batch, n):
        raise ValueError(
            f"keys must be {[batch, k, 'n']} and values {[batch, 'n', 'd']}, "
            f"but got {list(keys.shape)} and {list(values.shape)}"
        )
    r, largest, along, summed = te.reduce_axis((0, k), "r"), *(te.reduce_axis((0, n), "r") for _ in range(3))
    scores = te.compute((batch, m, n), lambda g, i, j: te.sum(queries[g, i, r] * keys[g, r, j], axis=r), name="scores")
    for added in more:
        scores = _sum(scores, added)
    maximum = te.compute((batch, m), lambda g, i: te.max(scores[g, i, largest], axis=largest), name="maximum")
    exponent = te.compute((batch, m, n), lambda g, i, j: te.exp(scores[g, i, j] - maximum[g, i]), name="exponent")
    total = te.compute((batch, m), lambda g, i: te.sum(exponent[g, i, along], axis=along), name="total")
    inverse = te.compute((batch, m), lambda g, i: 1.0 / total[g, i], name="inverse")
    weighted = te.compute(
        (batch, m, d),
        lambda g, i, c: te.sum(exponent[g, i, summed] * values[g, summed, c], axis=summed),
        name="weighted",
    )
    return te.compute((batch, m, d), lambda g, i, c: weighted[g, i, c] * inverse[g, i], name="attention")


def _sum(scores: te.Tensor, added: te.Tensor) -> te.Tensor:
    pairs = zip(added.shape[::-1], scores.shape[::-1], strict=False)
    if len(added.shape) > 3 or any(extent not in (1, whole) for extent, whole in pairs):
        raise ValueError(f"what is added must broadcast to {list(scores.shape)}, but got {list(added.shape)}")
    return te.compute(scores.shape, lambda *i: scores[i] + at(added, i), name="added")


def _computed(attrs: Attributes, queries: Array, keys: Array, values: Array, *more: Array) -> Array:
    scores = queries.astype(np.float64) @ keys
    for added in more:
        scores = scores + added
    scores = np.exp(scores - scores.max(-1, keepdims=True))
    found: Array = scores @ values / scores.sum(-1, keepdims=True)
    return found


register(GraphOp("attention", Kind.compute, exactly(), _attention, compute=_computed))
