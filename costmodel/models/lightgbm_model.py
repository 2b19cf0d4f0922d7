"""Gradient-boosted trees whose loss is on the sum of a program's statement scores (Ansor, OSDI 2020)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from costmodel.features import NAMES, SECONDS
from costmodel.models import prior as roofline
from costmodel.models.boosted import BoostedModel
from costmodel.models.booster import boost, options_of, trees_for
from costmodel.models.forest import MAX_LEAVES
from costmodel.models.learner import Programs
from costmodel.models.tunable import Range, Tunable

Gradients = tuple[NDArray[np.float64], NDArray[np.float64]]


class LightGBMModel(BoostedModel):
    """Regression of throughput; a program's score is the sum over its statements.

    Deterministic: the same measurements in the same order give the same trees.

    Args:
        seed: of the sampling of features and of programs.
        trees: at most; half as many as programs, and no fewer than 8, where there are few.
        leaves, learning_rate, feature_share, bins: of the boosting.
        base_weight: what a program of throughput 0 weighs in the loss; one of throughput y weighs y more.
        prior: whether the trees learn what is missing to the roofline's throughput, scaled to the
            measurements. It makes a few measurements enough, where all are of one task.
        programs: greatest number of programs to learn one task from, so that a refit's cost has a bound: the faster
            half of them, and of the rest a sample.
        tasks_trees: as `trees`, where programs of many tasks are learned from: all of them, without the prior.
    """

    head = "roofline_prior="
    tunable: ClassVar[Mapping[str, Tunable]] = {
        "leaves": Range(4, MAX_LEAVES),
        "learning_rate": Range(0.02, 0.3, log=True),
        "feature_share": Range(0.1, 0.8),
        "base_weight": Range(0.01, 1.0, log=True),
        "tasks_trees": Range(50, 800, log=True),
    }

    def __init__(
        self,
        seed: int = 0,
        trees: int = 100,
        leaves: int = 16,
        learning_rate: float = 0.1,
        feature_share: float = 0.25,
        bins: int = 63,
        base_weight: float = 0.1,
        prior: bool = True,
        programs: int = 2048,
        tasks_trees: int = 400,
    ) -> None:
        self._parameters = options_of(seed, leaves, learning_rate, feature_share, bins)
        self.seed, self.trees, self.base_weight, self.programs = seed, trees, base_weight, programs
        self.prior, self.tasks_trees, self._scale = prior, tasks_trees, 0.0

    def predict(self, features: NDArray[np.float32]) -> NDArray[np.float64]:
        """See `CostModel.predict`."""
        forest = self.forest
        by_statement = features.transpose(1, 2, 0)  # (statements, features, n)
        scores: NDArray[np.float64] = np.sum([forest.predict(rows) for rows in by_statement], axis=0)
        return scores + roofline.expected(roofline.roofline_speed(features[:, 0, SECONDS]), self._scale)

    def own(self) -> str:
        """The prior's scale."""
        return repr(self._scale)

    def read_own(self, own: str, path: Path) -> int:
        """See `BoostedModel.read_own`; a model of LightGBM's own has none."""
        self._scale = float(own or 0.0)
        return len(NAMES)

    def train(self, programs: Programs) -> None:
        """See `Learner.train`; many tasks without the prior, for one scale does not fit them."""
        features, throughput = programs.features, programs.throughput
        weight, speed = self.base_weight + throughput, roofline.speeds(features)
        self._scale = roofline.scale_of(speed, throughput, weight) if self.prior and not programs.many else 0.0
        rows, program = self.rows(features)
        loss = SumLoss(np.bincount(program), throughput - roofline.expected(speed, self._scale), weight)
        trees = trees_for(len(features), self.tasks_trees if programs.many else self.trees)
        self.keep(boost(rows, loss, self._parameters, trees))


class SumLoss:
    """Weighted squared error of the sum of a program's statement scores, as LightGBM wants an objective.

    Args:
        counts: statements of each program, (programs,).
        target: throughput, (programs,).
        weight: of each program in the loss, (programs,).
    """

    def __init__(self, counts: NDArray[np.int64], target: NDArray[np.float64], weight: NDArray[np.float64]) -> None:
        self.counts, self.target, self.weight = counts, target, weight
        self._program = np.repeat(np.arange(len(counts)), counts)  # (rows,)

    def __call__(self, scores: NDArray[np.float64]) -> Gradients:
        """Gradient and curvature by row; as a program's statements step together, the latter counts them."""
        sums = np.bincount(self._program, scores, minlength=len(self.counts))
        gradient = self.weight * (sums - self.target)
        return gradient[self._program], (self.weight * self.counts)[self._program]
