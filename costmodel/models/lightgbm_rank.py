"""Gradient-boosted trees that learn an order: pairwise and LambdaRank losses instead of the squared error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from costmodel.features import NAMES, SECONDS
from costmodel.features.program import PROGRAM_NAMES, program_features, program_rows
from costmodel.models.base import Scores
from costmodel.models.boosted import BoostedModel, estimated, summed
from costmodel.models.booster import NO_TREES, boost, options_of, trees_for
from costmodel.models.errors import ModelError
from costmodel.models.forest import MAX_LEAVES
from costmodel.models.learner import Programs
from costmodel.models.pair_loss import PairLoss
from costmodel.models.tunable import Choice, Range, Tunable

SCOPES = ("program", "statements")


class PairwiseModel(BoostedModel):
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

    head = "autotune_rank="
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

    def predict(self, features: NDArray[np.float32]) -> Scores:
        """See `CostModel.predict`."""
        forest = self.forest
        if self.scope == "program":
            found = forest.predict(program_features(features))
        else:
            found = summed(forest, features)
        return found - self._slope * features[:, 0, SECONDS].astype(np.float64)

    def own(self) -> str:
        """Scope and slope."""
        return f"{self.scope} {self._slope!r}"

    def read_own(self, own: str, path: Path) -> int:
        """See `BoostedModel.read_own`."""
        scope, _, slope = own.partition(" ")
        if scope not in SCOPES:
            raise ModelError(f"{path}: a saved model must end with a line {self.head}SCOPE SLOPE, but got {own[:40]!r}")
        self.scope, self._slope = scope, float(slope)
        return len(PROGRAM_NAMES) if scope == "program" else len(NAMES)

    def rows(self, features: Sequence[NDArray[np.float32]]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """See `BoostedModel.rows`."""
        if self.scope == "program":
            return program_rows(features), np.arange(len(features))
        return super().rows(features)

    def train(self, programs: Programs) -> None:
        """See `Learner.train`."""
        features, throughput = programs.features, programs.throughput
        rows, program = self.rows(features)
        counts = np.bincount(program, minlength=len(features))
        seconds = estimated(features)

        def loss(offset: NDArray[np.float64]) -> PairLoss:
            return PairLoss(counts, throughput, programs.groups, offset, self.pairs, self.lambdarank, self.seed)

        self._slope = loss(np.zeros(len(features))).slope(-seconds) if self.prior else 0.0
        if not np.ptp(throughput):
            self.keep(NO_TREES)
            return
        trees = trees_for(len(features), self.tasks_trees if programs.many else self.trees)
        self.keep(boost(rows, loss(-self._slope * seconds), self._parameters, trees))


class LambdaRankModel(PairwiseModel):
    """The same, where a pair weighs what its exchange would do to the discounted cumulative gain."""

    lambdarank = True
