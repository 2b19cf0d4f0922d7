"""Gradient-boosted trees on what the roofline misses: the logarithm of measured over estimated time, within a task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from costmodel.features import SECONDS
from costmodel.features.program import program_rows
from costmodel.features.relative import RELATIVE_NAMES, relative_features, relative_rows
from costmodel.models.base import CostModel, Scores, check_lengths, need_fit
from costmodel.models.booster import boost, check_text, options_of
from costmodel.models.errors import ModelError
from costmodel.models.forest import MAX_LEAVES, Forest
from costmodel.models.subsample import faster_half
from costmodel.models.tunable import Range, Tunable

NO_TREES = "tree"
SLOWEST = 2.0**-6
"""Throughput that failures, and all that is slower, are taken for: logarithms need one."""

_HEAD = "autotune_residual="


class ResidualModel(CostModel):
    """Boosted trees on `features.relative`; a score is the logarithm of the throughput, up to a constant of the task.

    The loss is the squared error of the logarithm after the task's mean has been taken off: which of two tasks takes
    longer is known from the roofline, and is not asked. Several forests, which differ in the features that their
    trees were offered, are averaged.

    Args:
        seed: of all draws.
        trees: of a forest, at most; half as many as programs, where there are few.
        leaves, learning_rate, feature_share, bins: of the boosting.
        leaf_programs: in a leaf, at least; an eighth of the programs, where there are few.
        members: forests that are averaged.
        base_weight: what a program of throughput 0 weighs in the loss; one of throughput y weighs y more.
        programs: greatest number of programs to learn one task from: the faster half, and of the rest a sample.
    """

    tunable: ClassVar[Mapping[str, Tunable]] = {
        "trees": Range(50, 800, log=True),
        "leaves": Range(4, MAX_LEAVES),
        "learning_rate": Range(0.02, 0.2, log=True),
        "feature_share": Range(0.05, 0.8, log=True),
        "leaf_programs": Range(3, 100, log=True),
        "base_weight": Range(0.01, 10.0, log=True),
    }

    def __init__(
        self,
        seed: int = 0,
        trees: int = 300,
        leaves: int = 16,
        learning_rate: float = 0.05,
        feature_share: float = 0.25,
        bins: int = 63,
        leaf_programs: int = 20,
        members: int = 4,
        base_weight: float = 0.1,
        programs: int = 2048,
    ) -> None:
        if members < 1 or leaf_programs < 1:
            raise ValueError(
                f"`members` and `leaf_programs` must be at least 1, but got members={members}, {leaf_programs=}"
            )
        self._parameters = options_of(seed, leaves, learning_rate, feature_share, bins)
        self.seed, self.trees, self.leaf_programs, self.members = seed, trees, leaf_programs, members
        self.base_weight, self.programs = base_weight, programs
        self._text: str | None = None
        self._forest: Forest | None = None
        self._forests = 1  # whose scores are averaged

    def fit(self, features: Sequence[NDArray[np.float32]], throughput: NDArray[np.float64]) -> None:
        """See `CostModel.fit`."""
        check_lengths(features, throughput)
        if len(features):
            chosen = faster_half(np.asarray(throughput, np.float64), self.programs, self.seed)
            self._fit([features[i] for i in chosen], throughput[chosen], np.zeros(len(chosen), np.int64))

    def fit_tasks(
        self, features: Sequence[NDArray[np.float32]], throughput: NDArray[np.float64], groups: NDArray[np.int64]
    ) -> None:
        """See `CostModel.fit_tasks`."""
        check_lengths(features, throughput)
        if len(features):
            self._fit(features, throughput, np.unique(groups, return_inverse=True)[1])

    def predict(self, features: NDArray[np.float32]) -> Scores:
        """See `CostModel.predict`."""
        missing = need_fit(self._forest).predict(relative_features(features)) / self._forests
        return -(features[:, 0, SECONDS].astype(np.float64) + missing)

    def save(self, path: Path) -> None:
        """Writes LightGBM's own text format, one forest after the other, and a last line with their number."""
        path.write_text(f"{need_fit(self._text)}\n{_HEAD}{self._forests}\n")

    def load(self, path: Path) -> None:
        """See `CostModel.load`."""
        text, _, own = path.read_text().partition(f"\n{_HEAD}")
        if not own.strip().isdigit() or int(own) < 1:
            raise ModelError(f"{path}: a saved model must end with a line {_HEAD}FORESTS, but got {own[:40]!r}")
        check_text(text, NO_TREES, len(RELATIVE_NAMES), path)
        self._learned(text, int(own))

    @property
    def forest(self) -> Forest:
        """The trees of all members."""
        return need_fit(self._forest)

    def rows(self, features: Sequence[NDArray[np.float32]]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """What the trees see of programs: (programs, columns), and the program of each row."""
        return relative_rows(program_rows(features)), np.arange(len(features))

    def with_forest(self, forest: Forest) -> ResidualModel:
        """The same model with other trees, to predict with."""
        other = copy(self)
        other._forest = forest
        return other

    def _fit(
        self, features: Sequence[NDArray[np.float32]], throughput: NDArray[np.float64], groups: NDArray[np.int64]
    ) -> None:
        rows = relative_rows(program_rows(features))
        estimated = np.array([of[0, SECONDS] for of in features], np.float64)
        throughput = np.asarray(throughput, np.float64)
        target = -np.log2(np.maximum(throughput, SLOWEST)) - estimated
        loss = CentredLoss(target, self.base_weight + throughput, groups)
        if (rows == rows[0]).all():
            self._learned(NO_TREES, 1)  # LightGBM refuses data in which no feature varies
            return
        trees = min(self.trees, max(1, len(features) // 2))
        least = max(1, min(self.leaf_programs, len(features) // 8))
        texts = []
        for member in range(self.members):
            parameters = {**self._parameters, "seed": self.seed + member, "min_data_in_leaf": least}
            texts.append(boost(rows, loss, parameters, trees))
        self._learned("\n".join(texts), self.members)

    def _learned(self, text: str, forests: int) -> None:
        self._text, self._forest, self._forests = text, Forest.from_lightgbm(text), forests


class CentredLoss:
    """Weighted squared error of what is left when the mean of its task is taken off, as LightGBM wants an objective.

    Args:
        target: of each program, (programs,).
        weight: of each program, (programs,).
        groups: (programs,) number of the task of each, from 0.
    """

    def __init__(self, target: NDArray[np.float64], weight: NDArray[np.float64], groups: NDArray[np.int64]) -> None:
        self.target, self.weight, self.groups = target, weight / weight.mean(), groups
        self._total = np.bincount(groups, self.weight)  # by task

    def __call__(self, scores: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Gradient and curvature by row."""
        error = scores - self.target
        mean = np.bincount(self.groups, self.weight * error) / self._total
        return self.weight * (error - mean[self.groups]), self.weight
