"""Populations with a known truth, for models to learn."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from costmodel.features import NAMES, SECONDS


def population(
    count: int, seed: int = 0, statements: int = 2, roofline: bool = True
) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """Features (count, statements, features) and throughput (count,).

    Seconds are the sum of what each statement takes, a product of three of its features; with `roofline`,
    the estimate among the features knows the greatest part of it.
    """
    rng = np.random.default_rng(seed)
    features = rng.uniform(0, 8, (count, statements, len(NAMES))).astype(np.float32)
    features[:, :, ::3] = np.round(features[:, :, ::3])
    waste = 1 + (features[:, :, 5] > 5) + 0.2 * features[:, :, 7]
    seconds = (np.exp2(features[:, :, 0] / 2) * waste).sum(axis=1)
    estimate = np.exp2(features[:, :, 0] / 2).sum(axis=1)
    features[:, :, SECONDS] = np.log2(1 + 1000 * estimate)[:, None] if roofline else 3.0
    return features, seconds.min() / seconds
