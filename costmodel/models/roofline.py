"""The analytic roofline: the model that every other must beat, and the prior from which several begin."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from costmodel.features import SECONDS
from costmodel.models.base import CostModel, Scores

MAX_PRIOR = 1.25
"""Greatest throughput that a roofline may promise: little more than 1."""


class RooflineModel(CostModel):
    """Scores by the program's estimated time, which is among the features of every statement; learns nothing."""

    def fit(self, features: Sequence[NDArray[np.float32]], throughput: NDArray[np.float64]) -> None:
        """Does nothing."""

    def predict(self, features: NDArray[np.float32]) -> Scores:
        return -logarithms(features)


def logarithms(features: Sequence[NDArray[np.float32]] | NDArray[np.float32]) -> Scores:
    """Reads each program's estimated time from its features: log2(1 + nanoseconds)."""
    if isinstance(features, np.ndarray):
        return features[:, 0, SECONDS].astype(np.float64)
    return np.array([of[0, SECONDS] for of in features], np.float64)


def speeds(features: Sequence[NDArray[np.float32]] | NDArray[np.float32]) -> Scores:
    """Estimates programs per nanosecond."""
    return np.exp2(-logarithms(features))


def fit_scale(speed: Scores, throughput: Scores, weight: Scores) -> float:
    """Fits the scale of the roofline's speed to the throughput, by weighted least squares."""
    return float((weight * speed * throughput).sum() / (weight * speed**2).sum())


def expected(speed: Scores, scale: float) -> Scores:
    """Estimates throughput by the roofline alone."""
    return np.minimum(speed * scale, MAX_PRIOR)
