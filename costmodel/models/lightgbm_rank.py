"""Gradient-boosted trees that learn an order: pairwise and LambdaRank losses instead of the squared error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from costmodel.features import NAMES, SECONDS
from costmodel.features.program import PROGRAM_NAMES, program_features, program_rows
from costmodel.models.base import CostModel, Scores, check_lengths, need_fit
from costmodel.models.booster import boost, check_text, options_of
from costmodel.models.errors import ModelError
from costmodel.models.forest import MAX_LEAVES, Forest
from costmodel.models.pair_loss import PairLoss
from costmodel.models.subsample import faster_half
from costmodel.models.tunable import Choice, Range, Tunable

LEAST_TREES = 8
NO_TREES = "tree"
SCOPES = ("program", "statements")
_HEAD = "autotune_rank="


class PairwiseModel(CostModel):
    """Trees on whole programs, or on statements whose scores add up; scores have no unit.

    They begin with the roofline's order, by as much as it agrees with the measurements: that holds across tasks, for
    only differences within a task count.

    Args:
        seed: of all draws.
        trees: at most; half as many as programs, and no fewer than 8, where there are few.
        leaves, learning_rate, feature_share, bins: of the boosting.
        pairs: partners that each program is compared with, drawn anew for every tree.
        scope: `program` or `statements`.
        prior: whether to begin with the roofline's order.
        programs: greatest number of programs to learn one task from: the faster half, and of the rest a sample.
        tasks_trees: as `trees`, where programs of many tasks are learned from: all of them.
    """

    lambdarank: ClassVar[bool] = False
    tunable: ClassVar[Mapping[str, Tunable]] = {
        "leaves": Range(4, MAX_LEAVES),
        "learning_rate": Range(0.02, 0.3, log=True),
        "feature_share": Range(0.05, 0.8, log=True),
        "scope": Choice(SCOPES),
        "tasks_trees": Range(50, 800, log=True),
    }

    def __init__(
        self,
        seed: int = 0,
        trees: int = 100,
        leaves: int = 24,
        learning_rate: float = 0.1,
        feature_share: float = 0.25,
        bins: int = 63,
        pairs: int = 8,
        scope: str = "program",
        prior: bool = True,
        programs: int = 2048,
        tasks_trees: int = 400,
    ) -> None:
        if scope not in SCOPES:
            raise ValueError(f"`scope` must be one of {', '.join(SCOPES)}, but got scope={scope!r}")
        if pairs < 1:
            raise ValueError(f"`pairs` must be at least 1, but got pairs={pairs}")
        self._parameters = options_of(seed, leaves, learning_rate, feature_share, bins)
        self.seed, self.trees, self.pairs, self.scope, self.prior = seed, trees, pairs, scope, prior
        self.programs, self.tasks_trees = programs, tasks_trees
        self._slope = 0.0  # of the score, by halvings of the roofline's seconds
        self._text: str | None = None
        self._forest: Forest | None = None

    def fit(self, features: Sequence[NDArray[np.float32]], throughput: NDArray[np.float64]) -> None:
        """See `CostModel.fit`."""
        check_lengths(features, throughput)
        if len(features):
            chosen = faster_half(np.asarray(throughput, np.float64), self.programs, self.seed)
            groups = np.zeros(len(chosen), np.int64)
            self._fit([features[i] for i in chosen], throughput[chosen], groups, self.trees)

    def fit_tasks(
        self, features: Sequence[NDArray[np.float32]], throughput: NDArray[np.float64], groups: NDArray[np.int64]
    ) -> None:
        """See `CostModel.fit_tasks`."""
        check_lengths(features, throughput)
        if len(features):
            self._fit(features, throughput, groups, self.tasks_trees)

    def predict(self, features: NDArray[np.float32]) -> Scores:
        """See `CostModel.predict`."""
        forest = need_fit(self._forest)
        if self.scope == "program":
            found = forest.predict(program_features(features))
        else:
            found = np.zeros(len(features))
            for rows in features.transpose(1, 2, 0):
                found += forest.predict(rows)
        return found - self._slope * features[:, 0, SECONDS].astype(np.float64)

    def save(self, path: Path) -> None:
        """Writes LightGBM's own text format, and a last line with what is its own."""
        path.write_text(f"{need_fit(self._text)}\n{_HEAD}{self.scope} {self._slope!r}\n")

    def load(self, path: Path) -> None:
        """See `CostModel.load`."""
        text, _, own = path.read_text().partition(f"\n{_HEAD}")
        scope, _, slope = own.strip().partition(" ")
        if scope not in SCOPES:
            raise ModelError(f"{path}: a saved model must end with a line {_HEAD}SCOPE SLOPE, but got {own[:40]!r}")
        columns = len(PROGRAM_NAMES) if scope == "program" else len(NAMES)
        check_text(text, NO_TREES, columns, path)
        self.scope, self._slope = scope, float(slope)
        self._learned(text)

    @property
    def forest(self) -> Forest:
        """The trees."""
        return need_fit(self._forest)

    def rows(self, features: Sequence[NDArray[np.float32]]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """What the trees see of programs: (rows, columns), and the program of each row, whose scores add up."""
        if self.scope == "program":
            return program_rows(features), np.arange(len(features))
        return np.concatenate(features), np.repeat(np.arange(len(features)), [len(of) for of in features])

    def with_forest(self, forest: Forest) -> PairwiseModel:
        """The same model with other trees, to predict with."""
        other = copy(self)
        other._forest = forest
        return other

    def _fit(
        self,
        features: Sequence[NDArray[np.float32]],
        throughput: NDArray[np.float64],
        groups: NDArray[np.int64],
        trees: int,
    ) -> None:
        rows, program = self.rows(features)
        counts = np.bincount(program, minlength=len(features))
        seconds = np.array([of[0, SECONDS] for of in features], np.float64)
        throughput = np.asarray(throughput, np.float64)

        def loss(offset: NDArray[np.float64]) -> PairLoss:
            return PairLoss(counts, throughput, groups, offset, self.pairs, self.lambdarank, self.seed)

        self._slope = loss(np.zeros(len(features))).slope(-seconds) if self.prior else 0.0
        if (rows == rows[0]).all() or not np.ptp(throughput):
            self._learned(NO_TREES)  # LightGBM refuses data in which no feature varies
            return
        count = min(trees, max(LEAST_TREES, len(features) // 2))
        self._learned(boost(rows, loss(-self._slope * seconds), self._parameters, count))

    def _learned(self, text: str) -> None:
        self._text, self._forest = text, Forest.from_lightgbm(text)


class LambdaRankModel(PairwiseModel):
    """The same, where a pair weighs what its exchange would do to the discounted cumulative gain."""

    lambdarank = True
