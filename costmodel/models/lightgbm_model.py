"""Gradient-boosted trees whose loss is on the sum of a program's statement scores (Ansor, OSDI 2020)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from costmodel.features import NAMES
from costmodel.models import roofline
from costmodel.models.base import Scores
from costmodel.models.boosted import BoostedModel, sum_scores
from costmodel.models.booster import boost
from costmodel.models.forest import MAX_LEAVES
from costmodel.models.learner import Programs
from costmodel.models.tunable import Range, Tunable

Gradients = tuple[NDArray[np.float64], NDArray[np.float64]]


@dataclass(eq=False, kw_only=True)
class LightGBMModel(BoostedModel):
    """Regression of throughput; a program's score is the sum over its statements.

    Attributes:
        base_weight: weight in the loss of a program of throughput 0; one of throughput y weighs y more.
        prior: whether, of one task, the trees learn the difference from the roofline's throughput, scaled to the
            measurements. Then a few measurements are enough.
    """

    head = "roofline_prior="
    tunable: ClassVar[Mapping[str, Tunable]] = {
        "leaves": Range(4, MAX_LEAVES),
        "learning_rate": Range(0.02, 0.3, log=True),
        "feature_share": Range(0.1, 0.8),
        "base_weight": Range(0.01, 1.0, log=True),
        "tasks_trees": Range(50, 800, log=True),
    }

    base_weight: float = 0.1
    prior: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self._scale = 0.0

    def predict(self, features: NDArray[np.float32]) -> Scores:
        return sum_scores(self.forest, features) + roofline.expected(roofline.speeds(features), self._scale)

    def own(self) -> str:
        return repr(self._scale)

    def read_own(self, own: str, path: Path) -> int:
        self._scale = float(own or 0.0)  # a file that LightGBM wrote lacks it
        return len(NAMES)

    def train(self, programs: Programs) -> None:
        features, throughput = programs.features, programs.throughput
        weight, speed = self.base_weight + throughput, roofline.speeds(features)
        one_scale = self.prior and not programs.many  # one scale does not fit many tasks
        self._scale = roofline.fit_scale(speed, throughput, weight) if one_scale else 0.0
        rows, program = self.rows(features)
        loss = SumLoss(np.bincount(program), throughput - roofline.expected(speed, self._scale), weight)
        self.keep(boost(rows, loss, self._parameters, self.count_trees(programs)))


class SumLoss:
    """Weighted squared error of the sum of a program's statement scores, as LightGBM wants an objective.

    Args:
        counts: statements of each program, (programs,).
        target: throughput, (programs,).
        weight: weight of each program in the loss, (programs,).
    """

    def __init__(self, counts: NDArray[np.int64], target: NDArray[np.float64], weight: NDArray[np.float64]) -> None:
        self.counts, self.target, self.weight = counts, target, weight
        self._program = np.repeat(np.arange(len(counts)), counts)  # (rows,)

    def __call__(self, scores: NDArray[np.float64]) -> Gradients:
        """Computes gradient and curvature by row; the latter counts a program's statements, which step together."""
        sums = np.bincount(self._program, scores, minlength=len(self.counts))
        gradient = self.weight * (sums - self.target)
        return gradient[self._program], (self.weight * self.counts)[self._program]
