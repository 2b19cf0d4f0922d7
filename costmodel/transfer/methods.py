"""Methods that combine knowledge of other tasks with measurements of a task."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from costmodel.models import roofline
from costmodel.models.base import CostModel
from costmodel.models.boosted import sum_scores
from costmodel.models.forest import Forest
from costmodel.models.learner import faster_half
from costmodel.models.lightgbm_model import LightGBMModel
from costmodel.models.lightgbm_rank import PairwiseModel
from costmodel.transfer.base import PriorKnowledge
from costmodel.transfer.errors import TransferError
from costmodel.transfer.tasks import Features
from costmodel.transfer.trees import Column, Growth, by_length, krige_leaves, refit_leaves
from search_space.operators.checks import choice

AUTO = "auto"
"""Name that selects the method that suits the source's model, see `resolve_method`."""
TREES = (LightGBMModel, PairwiseModel)
MOST_KRIGED = 512
"""Maximum number of records that a Gaussian process learns from: its cost grows with their cube."""
BASE_WEIGHT = 0.1
"""Weight in the loss of a program of throughput 0; one of throughput y weighs y more."""


@dataclass(eq=False)
class Method(ABC):
    """A method that scores candidates of one task, higher is better: at first by the source alone.

    Attributes:
        prior: knowledge of the task from the source.
        seed: seed of every draw.
        weight: share of the source in the predictions, from 1 to 0.
    """

    prior: PriorKnowledge
    seed: int = 0
    weight: float = field(default=1.0, init=False)

    @abstractmethod
    def fit(self, features: Sequence[Features], throughput: Column) -> None:
        """Learns from all measurements of the task, and forgets earlier ones; see `CostModel.fit`."""

    @abstractmethod
    def predict(self, features: NDArray[np.float32]) -> Column:
        """Predicts scores: (candidates, statements, features) -> (candidates,). Before `fit`, those of the source."""


@dataclass(frozen=True)
class Calibration:
    """Throughput as a function of the source's scores: slope * score + shift; a slope of 0 if they mislead."""

    slope: float
    shift: float

    @staticmethod
    def of(scores: Column, throughput: Column, weight: Column) -> Calibration:
        """Fits slope and shift by weighted least squares, with a slope of at least 0."""
        total = weight.sum()
        mean, centre = float(weight @ scores / total), float(weight @ throughput / total)
        spread = float(weight @ (scores - mean) ** 2)
        slope = max(0.0, float(weight @ ((scores - mean) * (throughput - centre))) / spread) if spread > 0 else 0.0
        return Calibration(slope, centre - slope * mean)

    def __call__(self, scores: Column) -> Column:
        return self.slope * scores + self.shift


class _MeasuredColumns:
    """Columns of the measured programs that every method needs."""

    def __init__(self, prior: PriorKnowledge, features: Sequence[Features], throughput: Column) -> None:
        self.features, self.target = features, np.asarray(throughput, np.float64)
        self.weight = BASE_WEIGHT + self.target
        self.scores = np.empty(len(features))
        for places, block in by_length(features):
            self.scores[places] = prior(block)
        self.speeds = roofline.speeds(features)
        self.scale = roofline.fit_scale(self.speeds, self.target, self.weight)
        self.calibration = Calibration.of(self.scores, self.target, self.weight)


@dataclass(eq=False)
class Residual(Method):
    """Trees for the error of the source's prediction, whose weight halves every `half_life` records (AutoTVM, 2018).

    As the source's part fades, the roofline replaces it, so that finally this is the model of the task alone.

    Attributes:
        half_life: number of records after which the source weighs half; 0: it never fades.
    """

    half_life: float = 64.0

    def __post_init__(self) -> None:
        if self.half_life < 0:
            raise ValueError(f"`half_life` must not be negative, but got half_life={self.half_life}")
        self._columns: _MeasuredColumns | None = None
        self._forest: Forest | None = None

    def fit(self, features: Sequence[Features], throughput: Column) -> None:
        self.weight = 0.5 ** (len(features) / self.half_life) if self.half_life else 1.0
        measured = self._columns = _MeasuredColumns(self.prior, features, throughput)
        expected = self._expected(measured.scores, measured.speeds)
        self._forest = Growth(self.seed).grow(features, measured.target - expected, measured.weight)

    def predict(self, features: NDArray[np.float32]) -> Column:
        scores = self.prior(features)
        if self._forest is None:
            return scores
        speeds = roofline.speeds(features)
        return self._expected(scores, speeds) + sum_scores(self._forest, features)

    def _expected(self, scores: Column, speeds: Column) -> Column:
        assert self._columns is not None
        own = roofline.expected(speeds, self._columns.scale)
        return own + self.weight * (self._columns.calibration(scores) - own)


@dataclass(eq=False)
class ContinuedBoosting(Residual):
    """A method that keeps the source's model, and continues boosting with the task's records (`init_model`)."""

    half_life: float = field(default=0.0, init=False)


@dataclass(eq=False)
class FineTuning(Method):
    """The source's trees with leaves moved towards the task's records, but close to their old values.

    Its `weight` is the share of the leaves' sum that has not moved.

    Attributes:
        penalty: weight of a leaf's old value, in programs.
        passes: number of passes over all trees.
    """

    penalty: float = 1.0
    passes: int = 4

    def __post_init__(self) -> None:
        if self.penalty <= 0 or self.passes < 1:
            raise ValueError(
                f"`penalty` and `passes` must be positive, but got penalty={self.penalty}, passes={self.passes}"
            )
        model = self.prior.base.model
        if not isinstance(model, TREES):
            raise TransferError(
                f"`model` must be made of boosted trees for the methods fine_tune and kriging, "
                f"but got model={self.prior.base.name!r}"
            )
        self._source = self._model = model

    def fit(self, features: Sequence[Features], throughput: Column) -> None:
        places = self._choose_records(np.asarray(throughput, np.float64))
        features, throughput = [features[place] for place in places.tolist()], throughput[places]
        measured = _MeasuredColumns(self.prior, features, throughput)
        calibration = measured.calibration
        self._model, self.weight = self._source, 0.0
        if calibration.slope <= 0.0:
            return  # the source's order is useless here, which the guard handles
        aligned = [self.prior.align(of) for of in features]
        rows, program = self._source.rows(aligned)
        before, target = self._source.forest, (measured.target - calibration.shift) / calibration.slope
        after = self._refit_trees(rows, program, target - measured.scores, measured.weight)
        self._model = self._source.with_forest(after)
        whole = float(np.abs(before.leaves).sum())
        moved = min(1.0, float(np.abs(after.leaves - before.leaves).sum()) / whole) if whole else 0.0
        self.weight = 1.0 - moved

    def predict(self, features: NDArray[np.float32]) -> Column:
        return self._model.predict(self.prior.align(features))

    def _choose_records(self, throughput: Column) -> NDArray[np.int64]:
        """Chooses the indices of the records to learn from."""
        return np.arange(len(throughput))

    def _refit_trees(self, rows: Features, program: NDArray[np.int64], missing: Column, weight: Column) -> Forest:
        """Changes the source's trees so that their sums grow by `missing`, (programs,)."""
        before = self._source.forest
        sums = np.bincount(program, before.predict(rows.T), minlength=len(missing))
        return refit_leaves(before, rows, program, sums + missing, weight, self.penalty, self.passes)


@dataclass(eq=False)
class Kriging(FineTuning):
    """The source's trees with leaves at the posterior mean of a Gaussian process whose kernel the trees define.

    The prior mean is the source's score, and the noise maximises the likelihood; scores of programs unlike all measured
    ones stay. Of many records it learns the faster half of `MOST_KRIGED` and a sample of the others.
    """

    penalty: float = field(default=1.0, init=False)
    passes: int = field(default=4, init=False)

    def _refit_trees(self, rows: Features, program: NDArray[np.int64], missing: Column, weight: Column) -> Forest:
        return krige_leaves(self._source.forest, rows, program, missing, weight)[0]

    def _choose_records(self, throughput: Column) -> NDArray[np.int64]:
        return faster_half(throughput, MOST_KRIGED, self.seed)


@dataclass(eq=False)
class Joint(Method):
    """One model of the task's records and of the source's programs, which weigh less as records accumulate.

    Its `weight` is the share of the source's programs in the loss.

    Attributes:
        half_life: number of records after which the source's programs weigh half.
        share: initial weight of all programs of the source, in records of the task.
        programs: most programs of the source, drawn by their tasks' weights.
    """

    half_life: float = 64.0
    share: float = 64.0
    programs: int = 1024

    def __post_init__(self) -> None:
        if min(self.half_life, self.share) <= 0 or self.programs < 1:
            raise ValueError(
                f"`half_life`, `share` and `programs` must be positive, "
                f"but got half_life={self.half_life}, share={self.share}, programs={self.programs}"
            )
        self._programs = self.prior.programs(self.programs, np.random.default_rng(self.seed))
        self._forest: Forest | None = None
        self._scale = 0.0

    def fit(self, features: Sequence[Features], throughput: Column) -> None:
        target, source = np.asarray(throughput, np.float64), self._programs
        weight = BASE_WEIGHT + target
        speeds = roofline.speeds(features)
        self._scale = roofline.fit_scale(speeds, target, weight)
        theirs = source.weights * (BASE_WEIGHT + source.throughput)
        theirs *= self.share * 0.5 ** (len(features) / self.half_life) / theirs.sum()
        self.weight = float(theirs.sum() / (theirs.sum() + len(features)))
        self._forest = Growth(self.seed, trees=150).grow(
            [*source.features, *(self.prior.align(of) for of in features)],
            np.concatenate([source.missing, target - roofline.expected(speeds, self._scale)]),
            np.concatenate([theirs, weight]),
        )

    def predict(self, features: NDArray[np.float32]) -> Column:
        if self._forest is None:
            return self.prior(features)
        speeds = roofline.speeds(features)
        return roofline.expected(speeds, self._scale) + sum_scores(self._forest, self.prior.align(features))


METHODS: dict[str, type[Method]] = {
    "residual": Residual,
    "continued": ContinuedBoosting,
    "fine_tune": FineTuning,
    "kriging": Kriging,
    "joint": Joint,
}
"""Name -> class. A new one is a class and a line here."""


def resolve_method(name: str, model: CostModel) -> str:
    """Resolves the name of a method: `auto` is the one that suits the source's model."""
    if name != AUTO:
        return name
    return "kriging" if isinstance(model, TREES) else "residual"


def get(name: str) -> type[Method]:
    """Finds a method by its name.

    Raises:
        TransferError: no method has this name; names the nearest.
    """
    return METHODS[choice("method", name, METHODS, error=TransferError)]
