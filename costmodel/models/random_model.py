"""Random scores: the floor of every comparison."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from costmodel.models.base import CostModel


class RandomModel(CostModel):
    """Uniform scores drawn from the seed and the features: the same candidates always get the same scores."""

    state_attributes = ("seed",)

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def fit(self, features: Sequence[NDArray[np.float32]], throughput: NDArray[np.float64]) -> None:
        """Does nothing."""

    def predict(self, features: NDArray[np.float32]) -> NDArray[np.float64]:
        words = (
            np.ascontiguousarray(features.reshape(len(features), features.shape[1] * features.shape[2]))
            .view(np.uint32)
            .astype(np.uint64)
        )
        odd = np.random.default_rng(self.seed).integers(0, 1 << 63, words.shape[1], np.uint64) * np.uint64(2)
        mixed = (words * (odd + np.uint64(1))).sum(axis=1, dtype=np.uint64)
        mixed = (mixed ^ (mixed >> np.uint64(31))) * np.uint64(0x9E3779B97F4A7C15)
        scores: NDArray[np.float64] = (mixed >> np.uint64(11)).astype(np.float64) / 2.0**53
        return scores
