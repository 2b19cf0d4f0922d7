"""Random scores: the floor of every comparison."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from costmodel.models.base import CostModel


class RandomModel(CostModel):
    """Uniform scores from a generator of its own."""

    def __init__(self, seed: int = 0) -> None:
        self._rng = np.random.default_rng(seed)

    def fit(self, features: Sequence[NDArray[np.float32]], throughput: NDArray[np.float64]) -> None:
        pass

    def predict(self, features: NDArray[np.float32]) -> NDArray[np.float64]:
        return self._rng.random(len(features))

    def save(self, path: Path) -> None:
        path.write_text("random\n")

    def load(self, path: Path) -> None:
        pass
