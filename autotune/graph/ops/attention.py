"""Attention: softmax of the products of queries and keys, times the values, without the softmax in memory.

In bfloat16 the exponents are rounded before they are summed up and multiplied, as in a separate softmax.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from autotune.graph.ops.base import GraphOp, Kind, Tensors, Types, WideningTensor, at, exactly, register
from autotune.graph.types import Array, Attributes
from search_space import te
from search_space.dtypes import FLOATS, numpy_dtype
from search_space.ir.expr import Expr
from search_space.operators.checks import choice

UNSEEN = -1e30
"""Score of a masked key: the exponential of its difference from any real score is 0."""


def _attributes(attributes: Attributes, types: Types) -> dict[str, Any]:
    attrs = exactly(weights="float32", causal=0)(attributes, types)
    choice("weights", attrs["weights"], list(FLOATS))
    causal = attrs["causal"]
    if type(causal) is not int or causal < 0:
        raise ValueError(f"`causal` must be a number of rows or 0, but got causal={causal!r}")
    return attrs


def _attention(attrs: Attributes, tensors: Tensors) -> te.Tensor:
    """Computes attention of queries (b, m, k), keys (b, k, n) and values (b, n, d).

    More inputs, such as masks, are added to the scores and broadcast to (b, m, n).

    If `causal` is not 0, each `causal` consecutive rows of queries belong to one position and see the keys up to it.

    The weighted sums of a row are divided by its total; dividing its scores takes more divisions. Weights in bfloat16
    are multiplied in pairs if the machine has such an instruction; the last of an odd number is added separately.
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
    weights = attrs.get("weights", "float32")
    apart = int(weights == "bfloat16" and n % 2 == 1 and n > 1)
    r, largest, along, summed = (te.reduce_axis((0, extent), "r") for extent in (k, n, n, n - apart))
    scores = te.compute((batch, m, n), lambda g, i, j: te.sum(queries[g, i, r] * keys[g, r, j], axis=r), name="scores")
    for added in more:
        scores = _sum(scores, added)
    if causal := attrs.get("causal", 0):
        scores = _mask_causal(scores, causal)
    maximum = te.compute((batch, m), lambda g, i: te.max(scores[g, i, largest], axis=largest), name="maximum")

    def powers(g: te.IterVar, i: te.IterVar, j: te.IterVar) -> Expr:
        return te.exp(scores[g, i, j] - maximum[g, i]).astype(weights)

    exponent = WideningTensor.of(te.compute((batch, m, n), powers, name="exponent"))
    total = te.compute((batch, m), lambda g, i: te.sum(exponent[g, i, along], axis=along), name="total")
    inverse = te.compute((batch, m), lambda g, i: 1.0 / total[g, i], name="inverse")
    weighted = te.compute(
        (batch, m, d),
        lambda g, i, c: te.sum(exponent[g, i, summed] * values[g, summed, c], axis=summed),
        name="weighted",
    )

    if not apart:
        return te.compute((batch, m, d), lambda g, i, c: weighted[g, i, c] * inverse[g, i], name="attention")
    last = te.compute((batch, m), lambda g, i: exponent[g, i, n - 1] / total[g, i], name="last")
    return te.compute(
        (batch, m, d),
        lambda g, i, c: weighted[g, i, c] * inverse[g, i] + last[g, i] * values[g, n - 1, c],
        name="attention",
    )


def _sum(scores: te.Tensor, summand: te.Tensor) -> te.Tensor:
    pairs = zip(summand.shape[::-1], scores.shape[::-1], strict=False)
    if len(summand.shape) > 3 or any(extent not in (1, whole) for extent, whole in pairs):
        raise ValueError(f"what is added must broadcast to {list(scores.shape)}, but got {list(summand.shape)}")
    return te.compute(scores.shape, lambda *i: scores[i] + at(summand, i), name="added")


def _mask_causal(scores: te.Tensor, causal: int) -> te.Tensor:
    """Masks scores: keys behind a row's position get a score whose exponential is 0."""

    def body(g: te.IterVar, i: te.IterVar, j: te.IterVar) -> Expr:
        return te.if_then_else(j <= i // causal, scores[g, i, j], UNSEEN)

    return te.compute(scores.shape, body, name="seen")


def _compute(attrs: Attributes, queries: Array, keys: Array, values: Array, *more: Array) -> Array:
    scores = queries.astype(np.float64) @ keys
    for added in more:
        scores = scores + added
    if causal := attrs["causal"]:
        rows, columns = np.indices(scores.shape[1:])
        scores = np.where(columns <= rows // causal, scores, UNSEEN)
    scores = np.exp(scores - scores.max(-1, keepdims=True)).astype(numpy_dtype(attrs["weights"])).astype(np.float64)
    found: Array = scores @ values / scores.sum(-1, keepdims=True)
    return found


register(GraphOp("attention", Kind.compute, _attributes, _attention, compute=_compute))
