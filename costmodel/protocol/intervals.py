"""Means over tasks and networks with intervals, and differences between models, by bootstrap.

Tasks are drawn again with replacement within each network, and so are the seeds of a model: an interval says what other
layers of such networks and other seeds would have given. Differences are paired: both models on the same draws.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodel.protocol.scores import TASK_METRICS, TOP, Ranked

DRAWS = 2000
METRICS = (*(f"top{k}" for k in TOP), *(f"normalised{k}" for k in TOP), *TASK_METRICS)
Values = NDArray[np.float64]


class Estimate(NamedTuple):
    """A figure, and the ends of its interval of 95 %."""

    value: float
    low: float
    high: float


class Difference(NamedTuple):
    """How much one model is better than another: the figure, its interval, and how likely so much is by chance."""

    value: float
    low: float
    high: float
    p: float


def plain(values: Iterable[float]) -> list[float | None]:
    """Figures as JSON has them: to five digits, None for NaN."""
    return [round(value, 5) if value == value else None for value in values]


@dataclass(frozen=True)
class Tasks:
    """What rankings are averaged over.

    Attributes:
        weights: network → (tasks,) how often each task occurs in it, 0 where it does not.
        best: (tasks,) seconds of the fastest program.
        chance: what choice at random is expected to come to, see `scores.by_chance`.
        seed: of the draws.
    """

    weights: Mapping[str, Values]
    best: Values
    chance: Ranked
    seed: int = 0

    @cached_property
    def places(self) -> Mapping[str, NDArray[np.int64]]:
        """Network → places of its tasks."""
        return {name: np.flatnonzero(of) for name, of in self.weights.items()}

    @cached_property
    def draws(self) -> Mapping[str, NDArray[np.int64]]:
        """Network → (`DRAWS`, its tasks) places, drawn with replacement."""
        rng = np.random.default_rng(self.seed)
        return {name: of[rng.integers(len(of), size=(DRAWS, len(of)))] for name, of in self.places.items()}

    def seeds(self, count: int) -> NDArray[np.int64]:
        """(`DRAWS`, count) seeds, drawn with replacement."""
        return np.random.default_rng([self.seed, count]).integers(count, size=(DRAWS, count))

    def value(self, metric: str, of: Ranked) -> float:
        """The figure: mean over the seeds, of the mean over networks (`top`, `normalised`) or over tasks."""
        whole = {name: places[None] for name, places in self.places.items()}
        return float(self._of(metric, of, whole).mean())

    def estimate(self, metric: str, of: Ranked) -> Estimate:
        """The figure and its interval; ends are NaN where there is nothing to draw from."""
        drawn = self._drawn(metric, of)
        if self._certain(of):
            return Estimate(self.value(metric, of), math.nan, math.nan)
        return Estimate(self.value(metric, of), *np.nanquantile(drawn, (0.025, 0.975)).tolist())

    def difference(self, metric: str, one: Ranked, other: Ranked) -> Difference:
        """By how much `one` is better than `other`, and the two-sided p-value of the paired bootstrap.

        One task a network and one seed are nothing to draw from: ends are NaN then, and p is 1.
        """
        drawn = self._drawn(metric, one) - self._drawn(metric, other)
        value = self.value(metric, one) - self.value(metric, other)
        if self._certain(one) and self._certain(other):
            return Difference(value, math.nan, math.nan, 1.0)
        low, high = np.nanquantile(drawn, (0.025, 0.975)).tolist()
        rarer = min(int((drawn <= 0).sum()), int((drawn >= 0).sum()))
        return Difference(value, low, high, min(1.0, 2 * (rarer + 1) / (DRAWS + 1)))

    def _certain(self, of: Ranked) -> bool:
        """Whether every draw is the same."""
        rankings = len(next(iter(of.metrics.values())))
        return rankings == 1 and all(len(places) == 1 for places in self.places.values())

    def _drawn(self, metric: str, of: Ranked) -> Values:
        """(`DRAWS`,) of other tasks and other seeds."""
        by_seed = self._of(metric, of, self.draws)  # (rankings, draws)
        seeds = self.seeds(len(by_seed))
        found: Values = by_seed[seeds.T, np.arange(DRAWS)].mean(axis=0)
        return found

    def _of(self, metric: str, of: Ranked, places: Mapping[str, NDArray[np.int64]]) -> Values:
        """(rankings, draws) of one metric, on the tasks at some places of each network."""
        if metric in TASK_METRICS:
            values = of.metrics[metric]
            parts = [values[:, at] for at in places.values()]  # each (rankings, draws, tasks)
            mean_of_tasks: Values = np.concatenate(parts, axis=2).mean(axis=2)
            return mean_of_tasks
        normalised = metric.startswith("normalised")
        k = int(metric.removeprefix("normalised" if normalised else "top"))
        scores = []
        for name, at in places.items():
            weight = self.weights[name][at]  # (draws, tasks)
            ideal = (weight * self.best[at]).sum(axis=1)
            score = ideal / (weight * of.found[k][:, at]).sum(axis=2)
            if normalised:
                chance = ideal / (weight * self.chance.found[k][0, at]).sum(axis=1)
                open_ = 1.0 - chance  # 0 where k programs are all there are: nothing is left to be better at
                score = np.where(open_ > 1e-12, (score - chance) / np.maximum(open_, 1e-12), np.nan)
            scores.append(score)
        mean: Values = np.mean(scores, axis=0)  # NaN where one network's is
        return mean
