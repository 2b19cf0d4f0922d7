"""Models that learn from a bounded number of measured programs, so that a refit's cost has a bound."""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from costmodel.models.base import CostModel, check_lengths
from costmodel.models.subsample import faster_half, spread


@dataclass(frozen=True)
class Programs:
    """What is learned from, at least one program.

    Attributes:
        features, throughput, groups: as in `CostModel.fit_tasks`.
        many: whether they are of many tasks.
    """

    features: list[NDArray[np.float32]]
    throughput: NDArray[np.float64]
    groups: NDArray[np.int64]
    many: bool


class Learner(CostModel):
    """Learns one task from the faster half of at most `programs` and a sample of the rest.

    Attributes:
        seed: of the samples.
        programs: of one task, at most.
        tasks_programs: of many tasks, at most: a sample, as many of each.
    """

    seed: int
    programs: int
    tasks_programs: int = sys.maxsize

    def fit(self, features: Sequence[NDArray[np.float32]], throughput: NDArray[np.float64]) -> None:
        """See `CostModel.fit`; learns from scratch, for throughput is relative to a best that changes."""
        check_lengths(features, throughput)
        target, groups = np.asarray(throughput, np.float64), np.zeros(len(features), np.int64)
        self._train(features, target, groups, faster_half(target, self.programs, self.seed), False)

    def fit_tasks(
        self, features: Sequence[NDArray[np.float32]], throughput: NDArray[np.float64], groups: NDArray[np.int64]
    ) -> None:
        """See `CostModel.fit_tasks`."""
        check_lengths(features, throughput)
        chosen = spread(groups, self.tasks_programs, self.seed)
        self._train(features, np.asarray(throughput, np.float64), groups, chosen, True)

    def _train(
        self,
        features: Sequence[NDArray[np.float32]],
        target: NDArray[np.float64],
        groups: NDArray[np.int64],
        chosen: NDArray[np.int64],
        many: bool,
    ) -> None:
        if len(chosen):
            self.train(Programs([features[i] for i in chosen], target[chosen], groups[chosen], many))

    @abstractmethod
    def train(self, programs: Programs) -> None:
        """Learns from programs in place of what it learned before."""
