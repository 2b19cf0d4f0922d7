"""What a cost model is: it ranks candidates of one task from the features of their statements."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Learned = TypeVar("Learned")


class CostModel(ABC):
    """Predicts a score that orders candidates by throughput, higher is better.

    A model sees features alone, never the machine or the schedule. What it draws, it draws from a seed of its own.
    """

    @abstractmethod
    def fit(self, features: Sequence[NDArray[np.float32]], throughput: NDArray[np.float64]) -> None:
        """Learns from measured candidates, in place of what it learned before.

        Args:
            features: per candidate (statements, features); the number of statements may differ.
            throughput: (candidates,) in [0, 1], best seconds / seconds; 0 for a failure.
        """

    @abstractmethod
    def predict(self, features: NDArray[np.float32]) -> NDArray[np.float64]:
        """Scores: (candidates, statements, features) → (candidates,).

        Raises:
            ValueError: a model that learns, and has not.
        """

    @abstractmethod
    def save(self, path: Path) -> None:
        """Writes what was learned, as text."""

    @abstractmethod
    def load(self, path: Path) -> None:
        """Reads what `save` wrote."""


def need_fit(learned: Learned | None) -> Learned:
    """What a model has learned.

    Raises:
        ValueError: nothing yet.
    """
    if learned is None:
        raise ValueError("a model must be fitted or loaded before it is used, but neither was done")
    return learned
