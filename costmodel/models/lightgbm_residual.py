"""Gradient-boosted trees on what the roofline misses: the logarithm of measured over estimated time, within a task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from costmodel.features.relative import RELATIVE_NAMES, relative_features, relative_rows
from costmodel.models.base import Scores
from costmodel.models.boosted import BoostedModel
from costmodel.models.booster import NO_TREES, boost, make_options
from costmodel.models.errors import CostModelError
from costmodel.models.forest import MAX_LEAVES, Forest
from costmodel.models.learner import Programs
from costmodel.models.roofline import logarithms
from costmodel.models.tunable import Range, Tunable

SLOWEST = 2.0**-6
"""Throughput that replaces lower ones and that of failures, as logarithms need a positive value."""


@dataclass(eq=False, kw_only=True)
class ResidualModel(BoostedModel):
    """Boosted trees on `features.relative`; a score is the logarithm of the throughput, up to a constant of the task.

    The loss is the squared error of the logarithm less the task's mean error. The roofline knows which of two tasks
    takes longer, so that the model need not learn it. The model averages several forests, whose trees were offered
    different features.

    Attributes:
        leaf_programs: fewest programs in a leaf; an eighth of the programs, for few programs.
        members: forests that are averaged.
        tasks_leaves, tasks_leaf_programs: values of `leaves` and `leaf_programs` for programs of many tasks.
        tasks_base_weight, tasks_sharpness: weights in the loss for programs of many tasks. A program that worked weighs
            y ** tasks_sharpness more: there are enough fast ones to learn how they differ.
        base_weight: weight in the loss of a program of throughput 0; one of throughput y weighs y more.
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

    trees: int = 300
    learning_rate: float = 0.05
    leaf_programs: int = 20
    members: int = 4
    tasks_trees: int = 600
    tasks_leaves: int = MAX_LEAVES
    tasks_leaf_programs: int = 50
    tasks_base_weight: float = 0.001
    tasks_sharpness: float = 3.0
    base_weight: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.members, self.leaf_programs, self.tasks_leaf_programs) < 1:
            raise ValueError(
                "`members`, `leaf_programs` and `tasks_leaf_programs` must be at least 1, but got members="
                f"{self.members}, leaf_programs={self.leaf_programs}, tasks_leaf_programs={self.tasks_leaf_programs}"
            )
        self._of_tasks = make_options(self.seed, self.tasks_leaves, self.learning_rate, self.feature_share, self.bins)
        self._forests = 1  # number of forests that are averaged

    @staticmethod
    def of(forest: Forest, members: int) -> ResidualModel:
        """Makes a model of trees that were learned elsewhere, `members` forests on `features.relative` in one."""
        model = ResidualModel()
        model._forest, model._forests = forest, members
        return model

    def predict(self, features: NDArray[np.float32]) -> Scores:
        missing = self.forest.predict(relative_features(features)) / self._forests
        return -(logarithms(features) + missing)

    def own(self) -> str:
        return str(self._forests)

    def read_own(self, own: str, path: Path) -> int:
        if not own.isdigit() or int(own) < 1:
            raise CostModelError(f"{path}: a saved model must end with a line {self.head}FORESTS, but got {own[:40]!r}")
        self._forests = int(own)
        return len(RELATIVE_NAMES)

    def rows(self, features: Sequence[NDArray[np.float32]]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        return relative_rows(features), np.arange(len(features))

    def train(self, programs: Programs) -> None:
        features, throughput = programs.features, programs.throughput
        rows, _ = self.rows(features)
        target = -np.log2(np.maximum(throughput, SLOWEST)) - logarithms(features)
        weight = self.base_weight + throughput
        if programs.many:
            sharp = self.tasks_base_weight + throughput**self.tasks_sharpness
            weight = np.where(throughput > 0, sharp, weight)  # failures are worth learning, too
        loss = CentredLoss(target, weight, np.unique(programs.groups, return_inverse=True)[1])
        options = self._of_tasks if programs.many else self._parameters
        trees = min(self.tasks_trees if programs.many else self.trees, max(1, len(features) // 2))
        leaf = self.tasks_leaf_programs if programs.many else self.leaf_programs
        least = max(1, min(leaf, len(features) // 8))
        seeds = range(self.seed, self.seed + self.members)
        texts = [boost(rows, loss, {**options, "seed": seed, "min_data_in_leaf": least}, trees) for seed in seeds]
        texts = [NO_TREES] if NO_TREES in texts else texts
        self._forests = len(texts)
        self.keep("\n".join(texts))


class CentredLoss:
    """An objective of LightGBM: the weighted squared error less the mean error of the task.

    Args:
        target: target of each program, (programs,).
        weight: weight of each program, (programs,).
        groups: number of the task of each program, from 0, (programs,).
    """

    def __init__(self, target: NDArray[np.float64], weight: NDArray[np.float64], groups: NDArray[np.int64]) -> None:
        self.target, self.weight, self.groups = target, weight / weight.mean(), groups
        self._total = np.bincount(groups, self.weight)  # by task

    def __call__(self, scores: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Computes gradient and curvature by row."""
        error = scores - self.target
        mean = np.bincount(self.groups, self.weight * error) / self._total
        return self.weight * (error - mean[self.groups]), self.weight
