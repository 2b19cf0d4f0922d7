"""Weights that another quantiser made: floats that are whole multiples of a scale, and which."""

from __future__ import annotations

import numpy as np

from autotune.graph.ir import Array
from autotune.graph.quantise.formats import Weights

MOST = 128
"""Steps that the largest weight of a channel may have, where it is negative; else one less."""
NEIGHBOURS = range(-2, 3)
"""Float32 numbers beside a quotient that are tried as scales: the quotient of a rounded product is as close to it."""
SAMPLE = 256
"""Weights of a channel by which most scales are ruled out."""


def multiples(weight: Array) -> Weights | None:
    """int8 weights and float32 scales, by channel, whose products are these very floats; None where there are none.

    The quantiser's own numbers are not needed: its largest weight is some number of steps up to 128, so one of 128
    quotients is the scale but for its last bits. What is found gives the floats again bit by bit, so nothing is lost
    by it, whoever made them.

    Args:
        weight: float32, last axis: channels.
    """
    columns = weight.reshape(-1, weight.shape[-1])
    largest = np.abs(columns).max(0, initial=0.0)
    if not columns.size or not np.isfinite(columns).all():
        return None
    whole = _found(columns.reshape(-1, 1), np.array([largest.max()], np.float32))  # one scale for the tensor
    scales = _found(columns, largest) if whole is None else np.broadcast_to(whole, largest.shape)
    if scales is None:
        return None
    values = np.rint(columns.astype(np.float64) / scales)
    return Weights(values.astype(np.int8).reshape(weight.shape), scales.astype(np.float64))


def _found(columns: Array, largest: Array) -> Array | None:
    """A scale for each column, float32; None where one has none. Columns of zeros have 1."""
    found = np.where(largest > 0, np.float32(0), np.float32(1))
    sample = columns[:: max(1, len(columns) // SAMPLE)]
    for steps in range(MOST, 0, -1):
        left = np.flatnonzero(found == 0)
        if not len(left):
            return found
        near = (largest[left].astype(np.float64) / steps).astype(np.float32)
        for away in NEIGHBOURS:
            scale = near + np.spacing(near) * np.float32(away)
            likely = np.flatnonzero((scale > 0) & _fits(sample[:, left], scale))
            likely = likely[_fits(columns[:, left[likely]], scale[likely])]
            found[left[likely]] = scale[likely]
    return found if found.all() else None


def _fits(columns: Array, scales: Array) -> Array:
    """Whether all weights of a column are products of int8 numbers with its scale, rounded to float32."""
    with np.errstate(divide="ignore", invalid="ignore"):
        values = np.rint(columns / scales)
    return np.asarray(((values * scales == columns) & (values < MOST)).all(0))
