"""Gradient-boosted trees whose loss is on the sum of a program's statement scores (Ansor, OSDI 2020)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from costmodel.features import NAMES, SECONDS
from costmodel.models import prior as roofline
from costmodel.models.base import CostModel, check_lengths, need_fit
from costmodel.models.booster import boost, check_text, options_of
from costmodel.models.forest import MAX_LEAVES, Forest
from costmodel.models.subsample import faster_half
from costmodel.models.tunable import Range, Tunable

LEAST_TREES = 8
NO_TREES = "tree"
_PRIOR = "roofline_prior="
Gradients = tuple[NDArray[np.float64], NDArray[np.float64]]


class LightGBMModel(CostModel):
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
        self._text: str | None = None
        self._forest: Forest | None = None

    def fit(self, features: Sequence[NDArray[np.float32]], throughput: NDArray[np.float64]) -> None:
        """See `CostModel.fit`; learns from scratch, for throughput is relative to a best that changes."""
        check_lengths(features, throughput)
        if len(features):
            chosen = self._choose(np.asarray(throughput, np.float64))
            target = np.asarray(throughput, np.float64)[chosen]
            self._fit([features[i] for i in chosen], target, self.trees, self.prior)

    def fit_tasks(
        self, features: Sequence[NDArray[np.float32]], throughput: NDArray[np.float64], groups: NDArray[np.int64]
    ) -> None:
        """See `CostModel.fit_tasks`; without the prior, for one scale does not fit many tasks."""
        check_lengths(features, throughput)
        if len(features):
            self._fit(features, np.asarray(throughput, np.float64), self.tasks_trees, False)

    def predict(self, features: NDArray[np.float32]) -> NDArray[np.float64]:
        """See `CostModel.predict`."""
        forest = need_fit(self._forest)
        by_statement = features.transpose(1, 2, 0)  # (statements, features, n)
        scores: NDArray[np.float64] = np.sum([forest.predict(rows) for rows in by_statement], axis=0)
        return scores + roofline.expected(roofline.roofline_speed(features[:, 0, SECONDS]), self._scale)

    def save(self, path: Path) -> None:
        """Writes LightGBM's own text format, and a last line with the prior's scale."""
        path.write_text(f"{need_fit(self._text)}\n{_PRIOR}{self._scale!r}\n")

    def load(self, path: Path) -> None:
        """Reads what `save` wrote, or a model of LightGBM's own."""
        text, _, scale = path.read_text().partition(f"\n{_PRIOR}")
        check_text(text, NO_TREES, len(NAMES), path)
        self._scale = float(scale or 0.0)
        self._learned(text)

    @property
    def forest(self) -> Forest:
        """The trees."""
        return need_fit(self._forest)

    def rows(self, features: Sequence[NDArray[np.float32]]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """What the trees see of programs: (rows, columns), and the program of each row, whose scores add up."""
        return np.concatenate(features), np.repeat(np.arange(len(features)), [len(of) for of in features])

    def with_forest(self, forest: Forest) -> LightGBMModel:
        """The same model with other trees, to predict with."""
        other = copy(self)
        other._forest = forest
        return other

    def _learned(self, text: str) -> None:
        self._text, self._forest = text, Forest.from_lightgbm(text)

    def _fit(
        self, features: Sequence[NDArray[np.float32]], target: NDArray[np.float64], trees: int, prior: bool
    ) -> None:
        weight, speed = self.base_weight + target, roofline.speeds(features)
        self._scale = roofline.scale_of(speed, target, weight) if prior else 0.0
        counts = np.array([len(of) for of in features])
        loss = SumLoss(counts, target - roofline.expected(speed, self._scale), weight)
        rows = np.concatenate(features)
        if (rows == rows[0]).all():
            self._learned(NO_TREES)  # LightGBM refuses data in which no feature varies
            return
        self._learned(boost(rows, loss, self._parameters, min(trees, max(LEAST_TREES, len(features) // 2))))

    def _choose(self, throughput: NDArray[np.float64]) -> NDArray[np.int64]:
        """Indices of the programs to learn from, ascending."""
        return faster_half(throughput, self.programs, self.seed)


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
