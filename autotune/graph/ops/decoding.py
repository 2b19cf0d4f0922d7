"""Operations of decoders: appends to caches, attention over a cache, rotary positions, root-mean-square norms.

A cache of keys or values is (n, heads, d): its first n rows are dense for every maximum length. Its elements may have
16 bits where those of the other factor have 32.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from autotune.graph.ops.base import GraphOp, Kind, Tensors, Types, WideningTensor, exactly, register
from autotune.graph.types import Array, Attributes
from search_space import te
from search_space.ir.expr import Expr


def _extended_attributes(attributes: Attributes, types: Types) -> dict[str, Any]:
    state, rows = types
    if state.shape[1:] != rows.shape[1:] or state.dtype != rows.dtype or len(rows.shape) < 1:
        raise ValueError(f"rows must be like those of the state, but got {state} and {rows}")
    if rows.shape[0] > state.shape[0]:
        raise ValueError(f"rows must be no more than the state has, but got {state} and {rows}")
    return exactly()(attributes, types)


def _extend(attrs: Attributes, tensors: Tensors) -> te.Tensor:
    """Defines a state whose last rows are those of the second input.

    Kernels compute nothing for it: the rows are written in place into the state, see `autotune.graph.views`.
    """
    state, rows = tensors
    before = state.shape[0] - rows.shape[0]

    def body(first: te.IterVar, *rest: te.IterVar) -> Expr:
        return te.if_then_else(first < before, state[(first, *rest)], rows[(first - before, *rest)])

    return te.compute(state.shape, body, name="extended")


def _extended_computed(attrs: Attributes, state: Array, rows: Array) -> Array:
    return np.concatenate([state[: len(state) - len(rows)], rows])


def _heads(queries: te.Tensor, cache: te.Tensor, index: int) -> None:
    """Checks (heads, rows, d or n) against a cache (n, heads, d)."""
    if len(queries.shape) != 3 or len(cache.shape) != 3 or queries.shape[0] != cache.shape[1]:
        raise ValueError(
            f"`inputs` must be of as many heads, but got {list(queries.shape)} and a cache {list(cache.shape)}"
        )
    if queries.shape[2] != cache.shape[index]:
        raise ValueError(f"a cache must fit {list(queries.shape)}, but got {list(cache.shape)}")


def _widen(cache: te.Tensor, other: te.Tensor) -> te.Tensor:
    """Reads a cache of 16 bits as float32, if the other factor is not of its dtype."""
    return cache if cache.dtype == other.dtype else WideningTensor.of(cache)


def _scores(attrs: Attributes, tensors: Tensors) -> te.Tensor:
    """Multiplies queries (heads, rows, d) by a cache of keys (n, heads, d) and a scale: (heads, rows, n)."""
    queries, keys = tensors
    _heads(queries, keys, 2)
    (heads, rows, depth), n = queries.shape, keys.shape[0]
    keys = _widen(keys, queries)
    r = te.reduce_axis((0, depth), "r")
    products = te.compute((heads, rows, n), lambda g, i, j: te.sum(queries[g, i, r] * keys[j, g, r], axis=r), "scores")
    return te.compute((heads, rows, n), lambda g, i, j: products[g, i, j] * attrs["scale"], name="scaled")


def _scores_computed(attrs: Attributes, queries: Array, keys: Array) -> Array:
    return np.asarray(queries.astype(np.float64) @ keys.transpose(1, 2, 0) * attrs["scale"])


def _mix(attrs: Attributes, tensors: Tensors) -> te.Tensor:
    """Multiplies shares (heads, rows, n) by a cache of values (n, heads, d): (heads, rows, d)."""
    shares, values = tensors
    _heads(shares, values, 0)
    (heads, rows, n), depth = shares.shape, values.shape[2]
    values = _widen(values, shares)
    r = te.reduce_axis((0, n), "r")
    return te.compute((heads, rows, depth), lambda g, i, c: te.sum(shares[g, i, r] * values[r, g, c], axis=r), "mixed")


def _mixed_computed(attrs: Attributes, shares: Array, values: Array) -> Array:
    return np.asarray(shares.astype(np.float64) @ values.transpose(1, 0, 2))


def _rotary(attrs: Attributes, tensors: Tensors) -> te.Tensor:
    """Rotates rows (m, heads, d) by angles whose cosines and sines are (m, d / 2).

    Elements c and c + d / 2 form a pair (Su et al., "RoFormer", 2021, in Llama's order of elements).
    """
    x, cosines, sines = tensors
    if len(x.shape) != 3 or x.shape[2] % 2:
        raise ValueError(f"rows must be (m, heads, d) with an even d, but got {list(x.shape)}")
    rows, _, depth = x.shape
    half = depth // 2
    if cosines.shape != (rows, half) or sines.shape != (rows, half):
        raise ValueError(f"cosines and sines must be {[rows, half]}, but got {list(cosines.shape)}")

    def body(i: te.IterVar, h: te.IterVar, c: te.IterVar) -> Expr:
        first = x[i, h, c] * cosines[i, c] - x[i, h, c + half] * sines[i, c]
        second = x[i, h, c] * cosines[i, c - half] + x[i, h, c - half] * sines[i, c - half]
        return te.if_then_else(c < half, first, second)

    return te.compute(x.shape, body, name="rotary")


def _compute_rotary(attrs: Attributes, x: Array, cosines: Array, sines: Array) -> Array:
    first, second = np.split(x.astype(np.float64), 2, axis=-1)
    cosines, sines = cosines[:, None], sines[:, None]
    return np.concatenate([first * cosines - second * sines, second * cosines + first * sines], axis=-1)


def _rms_norm(attrs: Attributes, tensors: Tensors) -> te.Tensor:
    """Scales rows (m, n) to a mean square of 1 and multiplies them by weights (n,).

    Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.
    """
    x, gamma = tensors
    if len(x.shape) != 2 or gamma.shape != x.shape[1:]:
        raise ValueError(f"rows must be (m, n) and weights (n,), but got {list(x.shape)} and {list(gamma.shape)}")
    rows, columns = x.shape
    r = te.reduce_axis((0, columns), "r")
    squares = te.compute((rows,), lambda i: te.sum(x[i, r] * x[i, r], axis=r), name="squares")
    share, epsilon = 1 / columns, attrs["epsilon"]
    scale = te.compute((rows,), lambda i: te.rsqrt(squares[i] * share + epsilon), name="scale")
    return te.compute((rows, columns), lambda i, j: x[i, j] * scale[i] * gamma[j], name="rms_norm")


def _rms_computed(attrs: Attributes, x: Array, gamma: Array) -> Array:
    x = x.astype(np.float64)
    return np.asarray(x / np.sqrt((x * x).mean(-1, keepdims=True) + attrs["epsilon"]) * gamma)


register(
    GraphOp("extended", Kind.view, _extended_attributes, _extend, compute=_extended_computed),
    GraphOp("cached_scores", Kind.compute, exactly(scale=1.0), _scores, compute=_scores_computed),
    GraphOp("cached_mix", Kind.compute, exactly(), _mix, compute=_mixed_computed),
    GraphOp("rotary", Kind.compute, exactly(), _rotary, compute=_compute_rotary),
    GraphOp("rms_norm", Kind.compute, exactly(epsilon=1e-5), _rms_norm, compute=_rms_computed),
)
