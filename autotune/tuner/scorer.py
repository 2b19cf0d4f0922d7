"""Scorers of candidates: the roofline or a pretrained model before the first measurements, then a cost model fitted on
the records.

With transfer, a share of each round is chosen by a model of other tasks' programs, see `costmodel.transfer`.
"""

from __future__ import annotations

import math
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from autotune.tuner.knobs import NoProgram, WithKnobs
from autotune.tuner.search.base import Candidate, SearchStrategy
from autotune.tuner.settings import check_exploration
from costmodel.features import get_extractor
from costmodel.features.knobs import KnobFeatures
from costmodel.metrics import pairwise_accuracy
from costmodel.models.base import CostModel, UncertainModel
from costmodel.transfer import Transfer
from search_space.parameters import ParameterSpace
from search_space.space import SearchSpace

NOISE, LITTLE_NOISE = 0.2, 0.03
"""Standard deviations of the noise on the logarithm of seconds in the first order, by the roofline and by a pretrained
model. The larger the error of an order, the further from its top it pays to look."""
LEAST_ROWS = 8
"""Number of measured candidates from which on a fitted model is trusted more than the roofline."""


class ModelScorer:
    """Scorer for a strategy, and the data that its cost model learns from.

    Args:
        space: space of the task; one of parameters has no programs, so that nothing is estimated and the model sees
            knobs.
        model: model that learns throughput: best seconds / seconds, 0 for a failure.
        rng: source of the noise on the first order.
        noise: standard deviation of this noise; None: `NOISE` or `LITTLE_NOISE`.
        extractor: function that makes a sketch's feature extractor, called like `get_extractor`.
        transfer: model of other tasks; it replaces the cost model for some requests.
        exploration: number of the model's standard deviations that are added to a score: an upper confidence bound
            (Srinivas et al., 2010). Only an `UncertainModel` has them.
        features: features for the model: the program's loops, the values of decisions (knobs), or both.
        pretrained_model: model of log2 of throughput before the first measurements, instead of the roofline; it sees
            loops.

    Attributes:
        seconds: time spent on scoring and fitting.
        scored_count: number of candidates scored by the model.
        rank_accuracy: share of the pairs of the candidates last observed that the model, as it was then, ordered
            correctly; NaN if it had learned nothing, or no pair differed.
    """

    def __init__(
        self,
        space: SearchSpace | ParameterSpace,
        model: CostModel,
        rng: np.random.Generator,
        noise: float | None = None,
        extractor: Callable[..., Any] = get_extractor,
        transfer: Transfer | None = None,
        exploration: float = 0.0,
        features: Literal["loops", "knobs", "both"] = "loops",
        pretrained_model: CostModel | None = None,
    ) -> None:
        check_exploration(model, exploration)
        if isinstance(space, ParameterSpace) and features != "knobs":
            raise ValueError(f"`features` of a space of parameters must be knobs, but got features={features!r}")
        self._knobs, self._loops = None if features == "loops" else KnobFeatures(space), features != "knobs"
        self.exploration = exploration
        self.space, self.model = space, model
        self._pretrained_model = pretrained_model if features == "loops" else None
        usual = NOISE if self._pretrained_model is None else LITTLE_NOISE
        self.noise = usual if noise is None else noise
        self.transfer = transfer
        self.seconds, self.scored_count, self.is_fitted = 0.0, 0, False
        self.rank_accuracy = math.nan
        self._rng, self._make = rng, extractor
        self._extractors: dict[int, Any] = {}
        # Features are recomputed for each fit: they take kilobytes per candidate, and little time beside the fit.
        self._choices_by_sketch: dict[int, list[NDArray[np.int32]]] = {}  # sketch -> choices, each (candidates, groups)
        self._positions_by_sketch: dict[
            int, list[NDArray[np.int64]]
        ] = {}  # sketch -> their positions in the order of observation
        self._latencies = array("d")  # seconds, NaN for a failure; in the order of observation
        self._by_source = False  # whether calls return the transfer's scores
        self._source_proposals: set[Candidate] = set()  # proposed by the transfer's scores

    def __call__(self, sketch: int, choices: NDArray[np.int32]) -> NDArray[np.float64]:
        """Scores candidates of one sketch: (n, groups) -> (n,), higher is better."""
        with self._add_time():
            columns = self.space.sketches[sketch].expand(choices)
            if self._by_source and self.transfer is not None:
                self.scored_count += len(choices)
                return self.transfer.predict(self._extractor(sketch)(columns))
            if not self.is_fitted:
                order = self._expected(sketch, columns)
                noisy: NDArray[np.float64] = order + self.noise * self._rng.standard_normal(len(order))
                return noisy
            self.scored_count += len(choices)
            features = self._extractor(sketch)(columns)
            if self.exploration and isinstance(self.model, UncertainModel):
                scores, deviations = self.model.predict_with_deviation(features)
                return np.asarray(scores + self.exploration * deviations, np.float64)
            return np.asarray(self.model.predict(features), np.float64)

    def score(self, candidates: Sequence[Candidate]) -> NDArray[np.float64]:
        """Scores candidates of any sketches by the current model, without noise: (candidates,), higher is better.

        Before the first fit it is the pretrained model or the roofline, as -log of seconds. The scores contain no
        noise, exploration or transfer, and no random number is drawn: the call changes nothing.
        """
        scores = np.empty(len(candidates))
        with self._add_time():
            for sketch, positions, rows in self._by_sketch(candidates):
                columns = self.space.sketches[sketch].expand(rows)
                if self.is_fitted:
                    scores[positions] = self.model.predict(self._extractor(sketch)(columns))
                else:
                    scores[positions] = self._expected(sketch, columns)
        return scores

    def features(self, sketch: int, choices: NDArray[np.int32]) -> NDArray[np.float32]:
        """Computes features of candidates of one sketch: (n, groups) -> (n, statements, features)."""
        found: NDArray[np.float32] = self._extractor(sketch)(self.space.sketches[sketch].expand(choices))
        return np.ascontiguousarray(found)

    def judge(self, other: ModelScorer, sketch: int, choices: NDArray[np.int32]) -> NDArray[np.float64]:
        """Scores candidates of a similar task by the current model: (n, groups) -> (n,), higher is better.

        Before the first fit, and with features of knobs, which belong to one space, it is the roofline, as -log of
        seconds.

        Args:
            other: scorer of the similar task, such as one of another size.
            sketch: number of a sketch of that task's space.
            choices: (n, groups) of that sketch.
        """
        if self.is_fitted and self._knobs is None:
            return np.asarray(self.model.predict(other.features(sketch, choices)), np.float64)
        return other._estimate(sketch, other.space.sketches[sketch].expand(choices))

    def ask(self, strategy: SearchStrategy, n: int) -> list[Candidate]:
        """Asks a strategy that has this scorer for candidates: some by scores of the source, the others without it.

        The larger part is chosen first. Random candidates are only among the others if the source has proved useful, or
        it chooses few: of 8, two would be many.
        """
        by_source = 0 if self.transfer is None else round(n * self.transfer.share)
        if self.transfer is None or not by_source:
            return strategy.ask(n)
        few = by_source < n - by_source
        asked = strategy.ask(n - by_source) if few else []
        self._by_source = True
        try:
            trusted = self.transfer.trusted and by_source < n
            chosen = strategy.ask_greedy(by_source) if trusted or few else strategy.ask(by_source)
        finally:
            self._by_source = False
        self._source_proposals |= {*chosen}
        asked = [*asked, *chosen]
        return asked if len(asked) == n or few else [*asked, *strategy.ask(n - len(asked))]

    def recall(self, candidates: Iterable[Candidate]) -> None:
        """Marks candidates about to be observed that the source proposed in an earlier session."""
        self._source_proposals |= {*candidates}

    def chosen_by_source(self, candidate: Candidate) -> bool:
        """Tells whether a candidate that is not observed yet was proposed by the scores of the source."""
        return candidate in self._source_proposals

    def observe(self, candidates: Sequence[Candidate], seconds: Sequence[float]) -> None:
        """Adds measured candidates to the data; NaN for a failure."""
        scores = np.full(len(candidates), np.nan)
        predicted = None if self.transfer is None or not self.transfer.active else np.empty(len(candidates))
        with self._add_time():
            for sketch, positions, rows in self._by_sketch(candidates):
                first = len(self._latencies)
                self._choices_by_sketch.setdefault(sketch, []).append(rows)
                self._positions_by_sketch.setdefault(sketch, []).append(np.arange(first, first + len(positions)))
                self._latencies.extend(float(seconds[place]) for place in positions)
                if self.is_fitted or predicted is not None:
                    columns = self.space.sketches[sketch].expand(rows)
                    features = self._extractor(sketch)(columns)
                    if self.is_fitted:
                        scores[positions] = self.model.predict(features)
                    if predicted is not None and self.transfer is not None:
                        predicted[positions] = self.transfer.predict(features)
                        if not self.is_fitted:
                            scores[positions] = self._expected(sketch, columns)
            measured = np.asarray(seconds, np.float64)
            self.rank_accuracy = _rank_accuracy(scores, measured) if self.is_fitted else math.nan
            if predicted is not None and self.transfer is not None and len(candidates):
                chosen = np.array([candidate in self._source_proposals for candidate in candidates])
                if self.transfer.share > 0.5:
                    self.rank_accuracy = _rank_accuracy(predicted, measured)
                self.transfer.observe(predicted, scores, measured, chosen)
            self._source_proposals -= {*candidates}

    def refit(self) -> None:
        """Fits the model on everything observed, if that is enough."""
        latencies = np.array(self._latencies)
        if np.isfinite(latencies).sum() < LEAST_ROWS:
            return
        with self._add_time():
            throughput = np.nan_to_num(np.nanmin(latencies) / latencies, nan=0.0)
            features = self._features()
            self.model.fit(features, throughput)
            self.is_fitted = True
            if self.transfer is not None:
                self.transfer.fit(features, throughput)

    def _features(self) -> list[NDArray[np.float32]]:
        """Computes the features of each candidate observed, in order: (statements of its sketch, features)."""
        features: list[NDArray[np.float32]] = [np.empty(0, np.float32)] * len(self._latencies)
        for sketch, parts in self._choices_by_sketch.items():
            columns = self.space.sketches[sketch].expand(np.concatenate(parts))
            for place, found in zip(
                np.concatenate(self._positions_by_sketch[sketch]), self._extractor(sketch)(columns), strict=True
            ):
                features[place] = found
        return features

    def _by_sketch(self, candidates: Sequence[Candidate]) -> Iterator[tuple[int, list[int], NDArray[np.int32]]]:
        """Lists sketches in order, each with the positions of its candidates and their choices (n, groups)."""
        for sketch in sorted({candidate.sketch for candidate in candidates}):
            places = [place for place, candidate in enumerate(candidates) if candidate.sketch == sketch]
            rows = np.array([candidates[place].choices for place in places], np.int32)
            yield sketch, places, rows.reshape(len(places), len(self.space.sketches[sketch].groups))

    def _expected(self, sketch: int, columns: NDArray[np.float64]) -> NDArray[np.float64]:
        """Computes -log of the seconds expected before the first fit, up to a constant: (columns, n) -> (n,)."""
        if self._pretrained_model is None:
            return self._estimate(sketch, columns)
        return np.asarray(np.log(2) * self._pretrained_model.predict(self._extractor(sketch)(columns)), np.float64)

    def _estimate(self, sketch: int, columns: NDArray[np.float64]) -> NDArray[np.float64]:
        """Computes -log of the roofline's seconds: (columns, n) -> (n,)."""
        return np.asarray(-np.log(np.maximum(self._extractor(sketch).roofline(columns), 1e-12)), np.float64)

    def _extractor(self, sketch: int) -> Any:
        if sketch not in self._extractors:
            extractor: Any = NoProgram()
            if not isinstance(self.space, ParameterSpace):
                of = self.space.sketches[sketch]
                extractor = self._make(of.program, of.columns, self.space.hardware)
            extractor = extractor if self._knobs is None else WithKnobs(extractor, self._knobs, sketch, self._loops)
            self._extractors[sketch] = extractor
        return self._extractors[sketch]

    @contextmanager
    def _add_time(self) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds += time.perf_counter() - start


def _rank_accuracy(scores: NDArray[np.float64], seconds: NDArray[np.float64]) -> float:
    """Computes the share of the pairs ordered correctly, both (candidates,); failures count as slower than all."""
    speed = np.nan_to_num(1.0 / seconds, nan=0.0)
    return pairwise_accuracy(scores, speed) if len(np.unique(speed)) > 1 else math.nan


class UnguidedScorer(ModelScorer):
    """Scorer of candidates drawn at random: it is never called, so that it needs no model and no features."""

    def observe(self, candidates: Sequence[Candidate], seconds: Sequence[float]) -> None:
        """Ignores the candidates."""

    def refit(self) -> None:
        """Leaves the model as it is."""
