"""What a cost model is: it ranks candidates of one task from the features of their statements."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray


class CostModel(ABC):
    """Predicts a score that orders candidates by throughput, higher is better."""

    @abstractmethod
    def fit(self, features: Sequence[NDArray[np.float32]], throughput: NDArray[np.float64]) -> None:
        """Learns from measured candidates.

        Args:
            features: per candidate (statements, features); the number of statements may differ.
            throughput: (candidates,) in [0, 1], best seconds / seconds; 0 for a failure.
        """

    @abstractmethod
    def predict(self, features: NDArray[np.float32]) -> NDArray[np.float64]:
        """Scores: (candidates, statements, features) → (candidates,)."""

    @abstractmethod
    def save(self, path: Path) -> None:
        """Writes what was learned, as text."""

    @abstractmethod
    def load(self, path: Path) -> None:
        """Reads what `save` wrote."""
