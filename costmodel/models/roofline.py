"""The analytic roofline alone: what a model must beat."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from costmodel.features import SECONDS
from costmodel.models.base import CostModel


class RooflineModel(CostModel):
    """Scores by the program's estimated time, which is among the features of every statement; learns nothing."""

    def fit(self, features: Sequence[NDArray[np.float32]], throughput: NDArray[np.float64]) -> None:
        """Does nothing."""

    def predict(self, features: NDArray[np.float32]) -> NDArray[np.float64]:
        """See `CostModel.predict`."""
        return -features[:, 0, SECONDS].astype(np.float64)
