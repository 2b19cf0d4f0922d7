"""Gradient-boosted trees on what the roofline misses: the logarithm of measured over estimated time, within a task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from costmodel.features import SECONDS
from costmodel.features.relative import RELATIVE_NAMES, relative_features, relative_rows
from costmodel.models.base import Scores
from costmodel.models.boosted import BoostedModel, estimated
from costmodel.models.booster import NO_TREES, boost, options_of
from costmodel.models.errors import ModelError
from costmodel.models.forest import MAX_LEAVES, Forest
from costmodel.models.learner import Programs
from costmodel.models.tunable import Range, Tunable

SLOWEST = 2.0**-6
"""Throughput that failures, and all that is slower, are taken for: logarithms need one."""


class ResidualModel(BoostedModel):
    """Boosted trees on `features.relative`; a score is the logarithm of the throughput, up to a constant of the task.

    The loss is the squared error of the logarithm after the task's mean has been taken off: which of two tasks takes
    longer is known from the roofline, and is not asked. Several forests, which differ in the features that their
    trees were offered, are averaged.

    Args:
        seed: of all draws.
        trees, leaves: of a forest, at most; half as many trees as programs, where there are few.
        learning_rate, feature_share, bins: of the boosting.
        leaf_programs: in a leaf, at least; an eighth of the programs, where there are few.
        tasks_trees, tasks_leaves, tasks_leaf_programs: the same, where programs of many tasks are learned from.
        members: forests that are averaged.
        base_weight: what a program of throughput 0 weighs in the loss; one of throughput y weighs y more.
        tasks_base_weight, tasks_sharpness: the same where programs of many tasks are learned from, and one that worked
            weighs y ** tasks_sharpness more: there are enough of the fast ones to learn how they differ.
        programs: greatest number of programs to learn one task from: the faster half, and of the rest a sample.
    """

    head = "autotune_residual="
    tunable: ClassVar[Mapping[str, Tunable]] = {
        "tasks_trees": Range(50, 1200, log=True),
        "tasks_leaves": Range(4, MAX_LEAVES),
        "learning_rate": Range(0.02, 0.2, log=True),
        "feature_share": Range(0.05, 0.8, log=True),
        "tasks_leaf_programs": Range(3, 200, log=True),
        "tasks_base_weight": Range(0.001, 1.0, log=True),
        "tasks_sharpness": Range(0.5, 8.0, log=True),
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
        tasks_trees: int = 600,
        tasks_leaves: int = MAX_LEAVES,
        tasks_leaf_programs: int = 50,
        tasks_base_weight: float = 0.001,
        tasks_sharpness: float = 3.0,
        base_weight: float = 0.1,
        programs: int = 2048,
    ) -> None:
        if min(members, leaf_programs, tasks_leaf_programs) < 1:
            raise ValueError(
                f"`members`, `leaf_programs` and `tasks_leaf_programs` must be at least 1, but got members={members}, "
                f"{leaf_programs=}, {tasks_leaf_programs=}"
            )
        self._parameters = options_of(seed, leaves, learning_rate, feature_share, bins)
        self._of_tasks = options_of(seed, tasks_leaves, learning_rate, feature_share, bins)
        self.tasks_trees, self.tasks_leaf_programs = tasks_trees, tasks_leaf_programs
        self.seed, self.trees, self.leaf_programs, self.members = seed, trees, leaf_programs, members
        self.tasks_base_weight, self.tasks_sharpness = tasks_base_weight, tasks_sharpness
        self.base_weight, self.programs = base_weight, programs
        self._forests = 1  # whose scores are averaged

    @staticmethod
    def of(forest: Forest, members: int) -> ResidualModel:
        """A model of trees that were learned elsewhere, to predict with.

        Args:
            forest: all trees, on `features.relative`.
            members: forests that are averaged in it.
        """
        model = ResidualModel()
        model._forest, model._forests = forest, members
        return model

    def predict(self, features: NDArray[np.float32]) -> Scores:
        """See `CostModel.predict`."""
        missing = self.forest.predict(relative_features(features)) / self._forests
        return -(features[:, 0, SECONDS].astype(np.float64) + missing)

    def own(self) -> str:
        """The number of forests."""
        return str(self._forests)

    def read_own(self, own: str, path: Path) -> int:
        """See `BoostedModel.read_own`."""
        if not own.isdigit() or int(own) < 1:
            raise ModelError(f"{path}: a saved model must end with a line {self.head}FORESTS, but got {own[:40]!r}")
        self._forests = int(own)
        return len(RELATIVE_NAMES)

    def rows(self, features: Sequence[NDArray[np.float32]]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """See `BoostedModel.rows`."""
        return relative_rows(features), np.arange(len(features))

    def train(self, programs: Programs) -> None:
        """See `Learner.train`."""
        features, throughput = programs.features, programs.throughput
        rows, _ = self.rows(features)
        target = -np.log2(np.maximum(throughput, SLOWEST)) - estimated(features)
        weight = self.base_weight + throughput
        if programs.many:
            sharp = self.tasks_base_weight + throughput**self.tasks_sharpness
            weight = np.where(throughput > 0, sharp, weight)  # what failed is worth knowing, too
        loss = CentredLoss(target, weight, np.unique(programs.groups, return_inverse=True)[1])
        options = self._of_tasks if programs.many else self._parameters
        trees = min(self.tasks_trees if programs.many else self.trees, max(1, len(features) // 2))
        leaf = self.tasks_leaf_programs if programs.many else self.leaf_programs
        least = max(1, min(leaf, len(features) // 8))
        texts = []
        for member in range(self.members):
            parameters = {**options, "seed": self.seed + member, "min_data_in_leaf": least}
            texts.append(boost(rows, loss, parameters, trees))
        texts = [NO_TREES] if NO_TREES in texts else texts
        self._forests = len(texts)
        self.keep("\n".join(texts))


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
