"""Scores of rankings by task, and their means over tasks and networks with intervals, by bootstrap.

Tasks are drawn again with replacement within each network, and so are the seeds of a model. So an interval covers other
layers of such networks, and other seeds. Differences are paired: both models on the same draws.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodel import metrics

TOP = (1, 5)
"""k of top-k and of Best@k."""
RECALL = 30
"""k of recall@k."""
TASK_METRICS = ("pairwise", "tau", "recall", *(f"best{k}" for k in TOP))
"""Means over tasks: share of pairs in the right order, Kendall's τ-b, recall@30, Best@k."""
METRICS = (*(f"top{k}" for k in TOP), *(f"normalised{k}" for k in TOP), *TASK_METRICS)
DRAWS = 2000
"""Resamples of the bootstrap."""

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Rankings:
    """Rankings of several models or seeds on the same tasks.

    Attributes:
        metrics: name of `TASK_METRICS` → (rankings, tasks).
        fastest: k → (rankings, tasks) seconds of the fastest of the k best-predicted programs; infinite if all fail.
    """

    metrics: dict[str, Values]
    fastest: dict[int, Values]


class Estimate(NamedTuple):
    """A figure, and the ends of its interval of 95 %."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        """Formats value and half the interval's width."""
        return f"{self.value:.3f} ±{(self.high - self.low) / 2:.3f}"


class Difference(NamedTuple):
    """Lead of one model over another, its interval of 95 %, and the p-value."""

    value: float
    low: float
    high: float
    p: float


def plain(values: Iterable[float]) -> list[float | None]:
    """Rounds figures to five digits for JSON, None for NaN."""
    return [round(value, 5) if value == value else None for value in values]


def plain_figures(figures: Mapping[str, Iterable[float]]) -> dict[str, list[float | None]]:
    """Converts figures by name, each a tuple, for JSON."""
    return {metric: plain(of) for metric, of in figures.items()}


def score_rankings(
    rankings: Sequence[Sequence[Values]], seconds: Sequence[Values], names: Sequence[str] = TASK_METRICS
) -> Rankings:
    """Scores rankings by the measured seconds.

    Args:
        rankings: (programs,) scores of each task, higher is better, for each ranking.
        seconds: (programs,) of each task; NaN for a failure, which has no order.
        names: metrics to compute, of `TASK_METRICS`.
    """
    scored = [
        [_of_task(scores, of, names) for scores, of in zip(ranking, seconds, strict=True)] for ranking in rankings
    ]
    return Rankings(
        {name: np.array([[of[0][name] for of in row] for row in scored]) for name in names},
        {k: np.array([[of[1][k] for of in row] for row in scored]) for k in TOP},
    )


def _of_task(scores: Values, seconds: Values, names: Sequence[str]) -> tuple[dict[str, float], dict[int, float]]:
    truth, valid = metrics.relative(seconds), np.isfinite(seconds)
    finite, count = np.where(valid, seconds, np.inf), len(seconds)
    best = {k: float(finite[metrics.best(scores, min(k, count))].min()) for k in TOP}
    of = {
        "pairwise": lambda: metrics.pairwise_accuracy(scores, truth),
        "tau": lambda: metrics.kendall(scores, truth),
        "recall": lambda: metrics.recall_at(scores, truth, min(RECALL, int(valid.sum()))),
        "best1": lambda: float(finite.min()) / best[1],
        "best5": lambda: float(finite.min()) / best[5],
    }
    return {name: of[name]() for name in names}, best


def by_chance(seconds: Sequence[Values]) -> Rankings:
    """Computes the expected scores of a random choice, exactly: one ranking, whose values are means over all orders."""
    counts = [len(of) for of in seconds]
    metrics_of = {
        "pairwise": [0.5] * len(seconds),
        "tau": [0.0] * len(seconds),
        "recall": [min(RECALL, count) / count for count in counts],
        **{f"best{k}": [expected_first(np.sort(of.min() / of)[::-1], min(k, len(of))) for of in seconds] for k in TOP},
    }
    found = {k: np.array([[expected_first(np.sort(of), min(k, len(of))) for of in seconds]]) for k in TOP}
    return Rankings({name: np.array([values]) for name, values in metrics_of.items()}, found)


def expected_first(values: Values, k: int) -> float:
    """Computes the expected value of the first in order among k that are drawn without replacement; exact.

    Of n, the one at index i is the first of the k with probability C(n-1-i, k-1) / C(n, k).
    """
    n = len(values)
    chance = np.empty(n - k + 1)
    chance[0] = k / n
    for place in range(1, n - k + 1):  # by the one before
        chance[place] = chance[place - 1] * (n - place - k + 1) / (n - place)
    return float(chance @ values[: n - k + 1])


def top_score(weight: Values, best: Values, fastest: Values) -> Values:
    """Computes how near networks come to their best when each task measures its best-predicted programs alone.

    Sum over tasks, the last axis, of weight x least seconds, over that with the least seconds `fastest` (TenSet).
    """
    score: Values = (weight * best).sum(axis=-1) / (weight * fastest).sum(axis=-1)
    return score


@dataclass(frozen=True)
class Tasks:
    """Tasks and networks over which rankings are averaged.

    Attributes:
        weights: network → (tasks,) how often each task occurs in it, 0 where it does not.
        best: (tasks,) seconds of the fastest program.
        chance: expected scores of a random choice, see `by_chance`.
        seed: seed of the draws.
    """

    weights: Mapping[str, Values]
    best: Values
    chance: Rankings
    seed: int = 0

    @cached_property
    def task_indices(self) -> Mapping[str, NDArray[np.int64]]:
        """Network → indices of its tasks."""
        return {name: np.flatnonzero(of) for name, of in self.weights.items()}

    @cached_property
    def draws(self) -> Mapping[str, NDArray[np.int64]]:
        """Network → (`DRAWS`, its tasks) indices, drawn with replacement."""
        rng = np.random.default_rng(self.seed)
        return {name: of[rng.integers(len(of), size=(DRAWS, len(of)))] for name, of in self.task_indices.items()}

    def seeds(self, count: int) -> NDArray[np.int64]:
        """Draws seeds with replacement: (`DRAWS`, count)."""
        return np.random.default_rng([self.seed, count]).integers(count, size=(DRAWS, count))

    def value(self, metric: str, of: Rankings) -> float:
        """Computes the figure: mean over seeds, of the mean over networks (`top`, `normalised`) or over tasks."""
        whole = {name: places[None] for name, places in self.task_indices.items()}
        return float(self._compute_metric(metric, of, whole).mean())

    def estimate(self, metric: str, of: Rankings) -> Estimate:
        """Computes the figure and its interval; ends are NaN if there is nothing to draw from."""
        drawn = self._draw_metric(metric, of)
        if self._certain(of):
            return Estimate(self.value(metric, of), math.nan, math.nan)
        return Estimate(self.value(metric, of), *np.nanquantile(drawn, (0.025, 0.975)).tolist())

    def estimates(self, of: Rankings) -> dict[str, Estimate]:
        """Computes every metric with its interval."""
        return {metric: self.estimate(metric, of) for metric in METRICS}

    def difference(self, metric: str, one: Rankings, other: Rankings) -> Difference:
        """Computes by how much `one` is better than `other`, and the two-sided p-value of the paired bootstrap.

        One task a network and one seed are nothing to draw from: ends are NaN then, and p is 1.
        """
        drawn = self._draw_metric(metric, one) - self._draw_metric(metric, other)
        value = self.value(metric, one) - self.value(metric, other)
        if self._certain(one) and self._certain(other):
            return Difference(value, math.nan, math.nan, 1.0)
        low, high = np.nanquantile(drawn, (0.025, 0.975)).tolist()
        rarer = min(int((drawn <= 0).sum()), int((drawn >= 0).sum()))
        return Difference(value, low, high, min(1.0, 2 * (rarer + 1) / (DRAWS + 1)))

    def _certain(self, of: Rankings) -> bool:
        """Tells whether every draw of the bootstrap is the same."""
        rankings = len(next(iter(of.metrics.values())))
        return rankings == 1 and all(len(places) == 1 for places in self.task_indices.values())

    def _draw_metric(self, metric: str, of: Rankings) -> Values:
        """Computes a metric on other tasks and other seeds: (`DRAWS`,)."""
        by_seed = self._compute_metric(metric, of, self.draws)  # (rankings, draws)
        seeds = self.seeds(len(by_seed))
        found: Values = by_seed[seeds.T, np.arange(DRAWS)].mean(axis=0)
        return found

    def _compute_metric(self, metric: str, of: Rankings, task_indices: Mapping[str, NDArray[np.int64]]) -> Values:
        """Computes a metric on the tasks at (draws, tasks) indices of each network: (rankings, draws)."""
        if metric in TASK_METRICS:
            values = of.metrics[metric]
            parts = [values[:, at] for at in task_indices.values()]  # each (rankings, draws, tasks)
            mean_of_tasks: Values = np.concatenate(parts, axis=2).mean(axis=2)
            return mean_of_tasks
        normalised = metric.startswith("normalised")
        k = int(metric.removeprefix("normalised" if normalised else "top"))
        scores = []
        for name, at in task_indices.items():
            weight, best = self.weights[name][at], self.best[at]  # (draws, tasks)
            score = top_score(weight, best, of.fastest[k][:, at])
            if normalised:
                chance = top_score(weight, best, self.chance.fastest[k][0, at])
                open_ = 1.0 - chance  # 0 where k programs are all there are: nothing is left to be better at
                score = np.where(open_ > 1e-12, (score - chance) / np.maximum(open_, 1e-12), np.nan)
            scores.append(score)
        mean: Values = np.mean(scores, axis=0)  # NaN where one network's is
        return mean
