"""Scores of searches of measured spaces: their results relative to random search, over the time of measuring.

After Willemsen, Schoonhoven, Filipovič, Tørring, van Nieuwpoort, van Werkhoven, "A methodology for comparing
optimization algorithms for auto-tuning" (Future Generation Computer Systems, 2024).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from autotune.lab.dataset.measured_space import MeasuredSpace

CUTOFF = 0.95
"""Part of the way from the median to the best that random search has gone when time is up."""
POINTS = 1000
"""Number of evenly spaced points of time that scores are averaged over."""


@dataclass(frozen=True, eq=False)
class Yardstick:
    """Random search on a measured space, and how much time a search has.

    A random draw takes the median time of measuring a configuration, so trials and seconds of random search differ by a
    constant factor.

    Args:
        measured_space: the space.
        cutoff: see `CUTOFF`.

    Raises:
        ValueError: a cutoff that is not between 0 and 1.
    """

    measured_space: MeasuredSpace
    cutoff: float = CUTOFF

    def __post_init__(self) -> None:
        if not 0 < self.cutoff < 1:
            raise ValueError(f"`cutoff` must be between 0 and 1, but got cutoff={self.cutoff}")

    @cached_property
    def trial_seconds(self) -> float:
        """Median time of measuring a configuration."""
        return float(np.median(self.measured_space.cost_seconds))

    @cached_property
    def value(self) -> float:
        """Seconds of a configuration at which random search is taken to be done."""
        median = float(np.nanmedian(self.measured_space.seconds))
        return self.measured_space.best + (median - self.measured_space.best) * (1 - self.cutoff)

    @cached_property
    def trials(self) -> int:
        """Draws after which random search is expected to have found a configuration as fast as that."""
        worked = self.measured_space.seconds[np.isfinite(self.measured_space.seconds)]
        slower = int(np.count_nonzero(worked > self.value))
        return max(1, math.ceil(slower / (len(worked) + 1 - slower)))

    @property
    def seconds(self) -> float:
        """Time that a search has."""
        return self.trials * self.trial_seconds

    @cached_property
    def times(self) -> NDArray[np.float64]:
        """Points of time at which searches are looked at, (points,)."""
        return np.linspace(self.trial_seconds, max(self.seconds, 2 * self.trial_seconds), POINTS)

    @cached_property
    def random(self) -> NDArray[np.float64]:
        """Seconds of the best that random search is expected to have at each of these, (points,)."""
        draws = np.arange(1, min(len(self.measured_space), math.ceil(self.times[-1] / self.trial_seconds) + 1) + 1)
        best = np.array([self.measured_space.expected_best(int(count)) for count in draws])
        return np.asarray(np.interp(self.times / self.trial_seconds, draws, best), np.float64)

    def performance(self, seconds: NDArray[np.float64], ends: NDArray[np.float64]) -> NDArray[np.float64]:
        """Computes a search's progress relative to random search at each point of time, (points,).

        1 is the best configuration there is, 0 as good as random search, below 0 worse. Before the first configuration
        that
        works, the search counts as random search.

        Args:
            seconds: seconds of each configuration in the order of asking, (trials,); NaN for a failure.
            ends: time that measuring had taken after each, (trials,).
        """
        best = np.fmin.accumulate(np.concatenate([[np.nan], seconds]))
        fastest = best[np.searchsorted(ends, self.times, side="right")]
        fastest = np.where(np.isnan(fastest), self.random, fastest)
        gap = self.random - self.measured_space.best
        share = (self.random - fastest) / np.where(gap > 0, gap, 1.0)
        # where random search has the best as well, as of a space of one configuration, there is nothing to gain
        return np.where(gap > 0, share, (fastest <= self.measured_space.best).astype(np.float64))

    def after_end(self, searches: Sequence[tuple[NDArray[np.float64], NDArray[np.float64]]]) -> NDArray[np.float64]:
        """Computes the share of the scored time after each search's end, (searches,).

        A search that has ended keeps its best configuration.
        """
        ends = np.array([elapsed[-1] if len(elapsed) else 0.0 for _, elapsed in searches])
        return np.asarray((self.times > ends[:, None]).mean(axis=1), np.float64)

    def score(self, searches: Sequence[tuple[NDArray[np.float64], NDArray[np.float64]]]) -> NDArray[np.float64]:
        """Averages `performance` of each search over time, (searches,)."""
        return np.array([self.performance(seconds, elapsed).mean() for seconds, elapsed in searches])
