"""Scores of a ranking, task by task, by the names that the literature has for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from costmodel import metrics

TOP = (1, 5)
"""k of top-k and of Best@k."""
RECALL = 30
TASK_METRICS = ("pairwise", "tau", "recall", *(f"best{k}" for k in TOP))
"""Means over tasks: share of pairs in the right order, Kendall's τ-b, recall@30, Best@k."""

Seconds = NDArray[np.float64]


@dataclass(frozen=True)
class Ranked:
    """Rankings of several models or seeds on the same tasks.

    Attributes:
        metrics: name of `TASK_METRICS` → (rankings, tasks).
        found: k → (rankings, tasks) seconds of the fastest of the k best-predicted programs.
    """

    metrics: dict[str, NDArray[np.float64]]
    found: dict[int, NDArray[np.float64]]


def ranked(predicted: Sequence[Sequence[NDArray[np.float64]]], seconds: Sequence[Seconds]) -> Ranked:
    """Scores rankings against what was measured.

    Args:
        predicted: of each ranking, of each task its (programs,) scores, higher is better.
        seconds: of each task (programs,), all finite.
    """
    found = [[_task(scores, of) for scores, of in zip(ranking, seconds, strict=True)] for ranking in predicted]
    return Ranked(
        {name: np.array([[of[0][name] for of in row] for row in found]) for name in TASK_METRICS},
        {k: np.array([[of[1][k] for of in row] for row in found]) for k in TOP},
    )


def by_chance(seconds: Sequence[Seconds]) -> Ranked:
    """What choice at random is expected to come to, exactly: one ranking, whose values are means over all orders."""
    counts = [len(of) for of in seconds]
    metrics_of = {
        "pairwise": [0.5] * len(seconds),
        "tau": [0.0] * len(seconds),
        "recall": [min(RECALL, count) / count for count in counts],
        **{f"best{k}": [first_of(np.sort(of.min() / of)[::-1], min(k, len(of))) for of in seconds] for k in TOP},
    }
    found = {k: np.array([[first_of(np.sort(of), min(k, len(of))) for of in seconds]]) for k in TOP}
    return Ranked({name: np.array([values]) for name, values in metrics_of.items()}, found)


def first_of(ordered: Seconds, k: int) -> float:
    """Expected value of the one that comes first in order among k that are drawn without replacement; exact.

    Of n, the one in place i is the first of the k with probability C(n-1-i, k-1) / C(n, k).
    """
    n = len(ordered)
    chance = np.empty(n - k + 1)
    chance[0] = k / n
    for place in range(1, n - k + 1):  # by the one before
        chance[place] = chance[place - 1] * (n - place - k + 1) / (n - place)
    return float(chance @ ordered[: n - k + 1])


def _task(scores: NDArray[np.float64], seconds: Seconds) -> tuple[dict[str, float], dict[int, float]]:
    truth, count = seconds.min() / seconds, len(seconds)
    found = {k: float(seconds[metrics.best(scores, min(k, count))].min()) for k in TOP}
    values = {
        "pairwise": metrics.pairwise_accuracy(scores, truth),
        "tau": metrics.kendall(scores, truth),
        "recall": metrics.recall_at(scores, truth, min(RECALL, count)),
        **{f"best{k}": float(seconds.min()) / found[k] for k in TOP},
    }
    return values, found
