"""Gradient-boosted trees that learn an order: pairwise and LambdaRank losses instead of the squared error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from costmodel.features import NAMES
from costmodel.features.program import PROGRAM_NAMES, program_features, program_rows
from costmodel.models.base import Scores
from costmodel.models.boosted import BoostedModel, sum_scores
from costmodel.models.booster import NO_TREES, boost
from costmodel.models.errors import CostModelError
from costmodel.models.forest import MAX_LEAVES
from costmodel.models.learner import Programs
from costmodel.models.pair_loss import PairLoss
from costmodel.models.roofline import logarithms
from costmodel.models.tunable import Choice, Range, Tunable

SCOPES = ("program", "statements")


@dataclass(eq=False, kw_only=True)
class PairwiseModel(BoostedModel):
    """Trees on whole programs, or on statements whose scores add up; scores have no unit.

    They begin with the roofline's order, scaled by how much it agrees with the measurements. This works across tasks,
    too, as only differences within a task count.

    Attributes:
        pairs: partners that each program is compared with, drawn anew for every tree.
        scope: `program` or `statements`.
        prior: whether to begin with the roofline's order.
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

    leaves: int = 24
    pairs: int = 8
    scope: str = "program"
    prior: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.scope not in SCOPES:
            raise ValueError(f"`scope` must be one of {', '.join(SCOPES)}, but got scope={self.scope!r}")
        if self.pairs < 1:
            raise ValueError(f"`pairs` must be at least 1, but got pairs={self.pairs}")
        self._slope = 0.0  # gain of the score when the roofline's seconds halve

    def predict(self, features: NDArray[np.float32]) -> Scores:
        of_program = self.scope == "program"
        found = self.forest.predict(program_features(features)) if of_program else sum_scores(self.forest, features)
        return found - self._slope * logarithms(features)

    def own(self) -> str:
        return f"{self.scope} {self._slope!r}"

    def read_own(self, own: str, path: Path) -> int:
        scope, _, slope = own.partition(" ")
        if scope not in SCOPES:
            raise CostModelError(
                f"{path}: a saved model must end with a line {self.head}SCOPE SLOPE, but got {own[:40]!r}"
            )
        self.scope, self._slope = scope, float(slope)
        return len(PROGRAM_NAMES) if scope == "program" else len(NAMES)

    def rows(self, features: Sequence[NDArray[np.float32]]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        if self.scope == "program":
            return program_rows(features), np.arange(len(features))
        return super().rows(features)

    def train(self, programs: Programs) -> None:
        features, throughput = programs.features, programs.throughput
        rows, program = self.rows(features)
        counts = np.bincount(program, minlength=len(features))
        seconds = logarithms(features)

        def loss(offset: NDArray[np.float64]) -> PairLoss:
            return PairLoss(counts, throughput, programs.groups, offset, self.pairs, self.lambdarank, self.seed)

        self._slope = loss(np.zeros(len(features))).slope(-seconds) if self.prior else 0.0
        if not np.ptp(throughput):
            self.keep(NO_TREES)
            return
        self.keep(boost(rows, loss(-self._slope * seconds), self._parameters, self.count_trees(programs)))


class LambdaRankModel(PairwiseModel):
    """A `PairwiseModel` whose pairs weigh the effect of their exchange on the discounted cumulative gain."""

    lambdarank = True
