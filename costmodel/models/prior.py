"""What a model knows before it has learned: the roofline's throughput, scaled to the measurements of one task."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from costmodel.features import SECONDS

MAX_PRIOR = 1.25
"""Throughput that a roofline may promise: little more than 1."""

Column = NDArray[np.float64]  # (candidates,)


def roofline_speed(log_nanoseconds: NDArray[np.float32]) -> Column:
    """Programs a nanosecond, from log2(1 + nanoseconds)."""
    return np.exp2(-log_nanoseconds.astype(np.float64))


def speeds(features: Sequence[NDArray[np.float32]]) -> Column:
    """Programs a nanosecond by the roofline, of candidates each (statements, features)."""
    return roofline_speed(np.array([of[0, SECONDS] for of in features], np.float32))


def scale_of(speed: Column, throughput: Column, weight: Column) -> float:
    """The scale with which the roofline's speed comes nearest to the throughput, by weighted least squares."""
    return float((weight * speed * throughput).sum() / (weight * speed**2).sum())


def expected(speed: Column, scale: float) -> Column:
    """Throughput by the roofline alone."""
    return np.minimum(speed * scale, MAX_PRIOR)
