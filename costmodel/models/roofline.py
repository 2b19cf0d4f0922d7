"""The analytic roofline alone: what a model must beat."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from costmodel.models.base import CostModel


class RooflineModel(CostModel):
    """Scores by the program's estimated seconds, the last feature of every statement; learns nothing."""

    def fit(self, features: Sequence[NDArray[np.float32]], throughput: NDArray[np.float64]) -> None:
        pass

    def predict(self, features: NDArray[np.float32]) -> NDArray[np.float64]:
        return -features[:, 0, -1].astype(np.float64)

    def save(self, path: Path) -> None:
        path.write_text("roofline\n")

    def load(self, path: Path) -> None:
        pass
