"""Statistics of searches: counted trials, with bounds for cut-off searches, and ratios with their uncertainty."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

CAP = 4096
"""Trials after which random search is given up."""
RESAMPLES = 4000
CONFIDENCE = 0.95


def group_by_kind(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, list[str]]:
    """Groups the names of the rows by `CPU` and `VTA`; measured ones come first.

    They are kept apart: the estimate of the simulated accelerator shares its constants with the simulator.
    """
    groups = {"CPU": [name for name, row in rows.items() if row["target"] != "vta"]}
    groups["VTA"] = [name for name, row in rows.items() if row["target"] == "vta"]
    return {kind: of for kind, of in groups.items() if of}


def trials_to(seconds: NDArray[np.float64], best: float, share: float) -> int | None:
    """Returns the number of the first trial that reaches `share` of the best, from 1; None where none does.

    Args:
        seconds: latencies in the order of asking, (trials,); NaN for a failure.
        best: seconds of the best known.
        share: best seconds / seconds to reach.
    """
    reached = np.flatnonzero(seconds <= best / share)
    return int(reached[0]) + 1 if len(reached) else None


def curve(seconds: NDArray[np.float64], best: float, at: Sequence[int]) -> NDArray[np.float64]:
    """Computes the share of the best known after each number of trials: (points,); 0 while nothing worked."""
    so_far = np.fmin.accumulate(np.where(np.isnan(seconds), np.inf, seconds))
    places = np.minimum(np.asarray(at), len(so_far)) - 1
    shares: NDArray[np.float64] = best / so_far[places]
    return shares


def count_trials(trials: Sequence[int | None], otherwise: int) -> NDArray[np.float64]:
    """Converts trials to numbers, (seeds,): a search that was cut off counts as `otherwise`.

    Ratios stay lower bounds if `otherwise` is the cap for the reference search, and the size of the complete table for
    the other one.
    """
    return np.array([otherwise if value is None else value for value in trials], np.float64)


@dataclass(frozen=True)
class Estimate:
    """A value and the bounds of its confidence interval."""

    value: float
    low: float
    high: float

    def to_json(self) -> list[float]:
        """Converts it to plain data: value, low, high."""
        return [self.value, self.low, self.high]


def bootstrap_mean(values: NDArray[np.float64], rng: np.random.Generator, resamples: int = RESAMPLES) -> Estimate:
    """Computes the mean over seeds, (seeds,), with its bootstrap interval."""
    drawn = values[rng.integers(0, len(values), (resamples, len(values)))].mean(axis=1)
    return _interval(float(values.mean()), drawn)


def speedup(
    tasks: Mapping[str, tuple[NDArray[np.float64], NDArray[np.float64]]],
    rng: np.random.Generator,
    resamples: int = RESAMPLES,
) -> Estimate:
    """Computes the geometric mean over tasks of (mean trials of random search) / (mean trials of another search).

    The bootstrap draws tasks with replacement, and within each task the seeds of both searches.

    Args:
        tasks: trials of random search and of the other by task, each (seeds,).
        rng: source of the draws.
        resamples: number of resamples.

    Raises:
        ValueError: no task.
    """
    if not tasks:
        raise ValueError("`tasks` must hold at least one, but got none")
    logs = np.empty((resamples, len(tasks)))
    value = 0.0
    for place, (random, other) in enumerate(tasks.values()):
        value += float(np.log(random.mean() / other.mean()))
        drawn = [side[rng.integers(0, len(side), (resamples, len(side)))].mean(axis=1) for side in (random, other)]
        logs[:, place] = np.log(drawn[0] / drawn[1])
    chosen = rng.integers(0, len(tasks), logs.shape)
    means = np.exp(np.take_along_axis(logs, chosen, axis=1).mean(axis=1))
    return _interval(float(np.exp(value / len(tasks))), means)


def _interval(value: float, draws: NDArray[np.float64]) -> Estimate:
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(draws, [tail, 1 - tail])
    return Estimate(value, float(low), float(high))
