"""Gradient-boosted trees whose loss is on the sum of a program's statement scores (Ansor, OSDI 2020)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
from numpy.typing import NDArray

from costmodel.models.base import CostModel


class LightGBMModel(CostModel):
    """Regression of throughput; a program's score is the sum over its statements.

    Args:
        seed: of the feature sampling.
        trees, leaves, learning_rate: of the boosting.
    """

    def __init__(self, seed: int = 0, trees: int = 60, leaves: int = 15, learning_rate: float = 0.15) -> None:
        self.trees = trees
        self._parameters: dict[str, Any] = {
            "num_leaves": leaves,
            "learning_rate": learning_rate,
            "min_data_in_leaf": 4,
            "feature_fraction": 0.5,
            "num_threads": 1,
            "deterministic": True,
            "force_col_wise": True,
            "seed": seed,
            "verbose": -1,
        }
        self._booster: lightgbm.Booster | None = None

    def fit(self, features: Sequence[NDArray[np.float32]], throughput: NDArray[np.float64]) -> None:
        if not len(features):
            return
        counts = np.array([len(f) for f in features])
        group = np.repeat(np.arange(len(counts)), counts)
        weight = np.sqrt(throughput) + 0.1  # what is fast must be ranked best

        def objective(scores: NDArray[np.float64], data: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
            sums = np.bincount(group, scores, minlength=len(counts))
            gradient = 2.0 * weight * (sums - throughput)
            return gradient[group], (2.0 * weight * counts)[group]

        rows = np.concatenate(list(features))
        data = lightgbm.Dataset(rows, np.repeat(throughput / counts, counts), free_raw_data=True)
        parameters = {**self._parameters, "objective": objective}
        self._booster = lightgbm.train(parameters, data, self.trees)

    def predict(self, features: NDArray[np.float32]) -> NDArray[np.float64]:
        if self._booster is None:
            return -features[:, 0, -1].astype(np.float64)
        candidates, statements, width = features.shape
        rows = self._booster.predict(features.reshape(-1, width), num_threads=1)
        sums: NDArray[np.float64] = np.asarray(rows, np.float64).reshape(candidates, statements).sum(axis=1)
        return sums

    def save(self, path: Path) -> None:
        if self._booster is None:
            raise ValueError("a model must be fitted before it is saved, but `fit` was not called")
        path.write_text(self._booster.model_to_string())

    def load(self, path: Path) -> None:
        self._booster = lightgbm.Booster(model_str=path.read_text())
