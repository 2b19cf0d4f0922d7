"""Weights quantised elsewhere: recognition of floats that are whole multiples of a scale."""

from __future__ import annotations

import numpy as np

from autotune.graph.ir import Array
from autotune.graph.quantise.formats import Weights

MOST = 128
"""Maximum steps of a channel's weights: 128 for negative ones, 127 for positive ones."""
NEIGHBOURS = range(-2, 3)
"""Offsets from a quotient, in units of float32 spacing, that are tried as scales: rounding moved it that far."""
SAMPLE = 256
"""Weights of a channel that are checked first, which rules out most scales."""


def multiples(weight: Array) -> Weights | None:
    """Returns int8 weights and float32 scales, by channel, whose products are exactly these floats, or None.

    The quantiser's own numbers are not needed. The largest weight is a number of steps up to 128, so one of 128
    quotients is the scale except for its last bits. The result reproduces the floats bit by bit, so it is lossless
    whatever the origin of the weights.

    Args:
        weight: float32, last axis: channels.
    """
    columns = weight.reshape(-1, weight.shape[-1])
    largest = np.abs(columns).max(0, initial=0.0)
    if not columns.size or not np.isfinite(columns).all():
        return None
    whole = _search_scales(columns.reshape(-1, 1), np.array([largest.max()], np.float32))  # one scale for the tensor
    scales = _search_scales(columns, largest) if whole is None else np.broadcast_to(whole, largest.shape)
    if scales is None:
        return None
    values = np.rint(columns.astype(np.float64) / scales)
    return Weights(values.astype(np.int8).reshape(weight.shape), scales.astype(np.float64))


def _search_scales(columns: Array, largest: Array) -> Array | None:
    """Finds a scale for each column, float32, 1 for columns of zeros; returns None if any column has none."""
    scales = np.where(largest > 0, np.float32(0), np.float32(1))
    sample = columns[:: max(1, len(columns) // SAMPLE)]
    for steps in range(MOST, 0, -1):
        left = np.flatnonzero(scales == 0)
        if not len(left):
            return scales
        near = (largest[left].astype(np.float64) / steps).astype(np.float32)
        for away in NEIGHBOURS:
            scale = near + np.spacing(near) * np.float32(away)
            likely = np.flatnonzero((scale > 0) & _fits(sample[:, left], scale))
            likely = likely[_fits(columns[:, left[likely]], scale[likely])]
            scales[left[likely]] = scale[likely]
    return scales if scales.all() else None


def _fits(columns: Array, scales: Array) -> Array:
    """Tells for each column whether its weights are products of int8 numbers with its scale, rounded to float32."""
    with np.errstate(divide="ignore", invalid="ignore"):
        values = np.rint(columns / scales)
    return np.asarray(((values * scales == columns) & (values < MOST)).all(0))
