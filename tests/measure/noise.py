"""Noise over another pool: search and models are tested against bad timings with no bad machine."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from measure.errors import ErrorClass
from measure.pool import MeasurePool, Trial, TrialResult


class NoisyPool(MeasurePool):
    """A pool whose latencies are another pool's times log-normal noise, and of which some trials fail.

    The noise of a trial depends on its place in the order of submission alone, not on when its result comes.

    Args:
        pool: the pool that measures; nothing has been submitted to it yet.
        rng: source of the noise.
        relative: standard deviation of the logarithm of a latency's factor; .05 is about 5 %.
        failures: share of the trials in [0, 1] that end as `unknown` instead.
    """

    def __init__(
        self, pool: MeasurePool, rng: np.random.Generator, relative: float = 0.05, failures: float = 0.0
    ) -> None:
        if not relative >= 0:
            raise ValueError(f"`relative` must not be negative, but got relative={relative}")
        if not 0 <= failures <= 1:
            raise ValueError(f"`failures` must lie in [0, 1], but got failures={failures}")
        self.pool = pool
        self.relative = relative
        self.failures = failures
        self._rng = rng
        self._draws: dict[int, tuple[float, bool]] = {}  # index -> factor, whether it fails
        self._submit_count = 0

    def submit(self, trials: Sequence[Trial]) -> None:
        """Passes trials on and draws their noise."""
        self.pool.submit(trials)
        for _ in trials:
            factor = math.exp(self.relative * self._rng.standard_normal())
            self._draws[self._submit_count] = (factor, bool(self._rng.random() < self.failures))
            self._submit_count += 1

    def results(self, timeout: float | None = None) -> list[TrialResult]:
        """Results of the pool below, with noise."""
        return [self._noisy(result) for result in self.pool.results(timeout)]

    def cancel(self) -> None:
        """Cancels in the pool below."""
        self.pool.cancel()

    def close(self) -> None:
        """Closes the pool below."""
        self.pool.close()

    @property
    def outstanding(self) -> int:
        """Trials submitted whose results were not returned yet."""
        return self.pool.outstanding

    @property
    def capacity(self) -> int:
        """Capacity of the pool below."""
        return self.pool.capacity

    def _noisy(self, result: TrialResult) -> TrialResult:
        factor, fails = self._draws.pop(result.index)
        if not result.ok:
            return result
        changes: dict[str, Any] = {
            "seconds": result.seconds * factor,
            "latencies": tuple(latency * factor for latency in result.latencies),
        }
        if fails:
            changes = {"latencies": (), "seconds": math.nan, "spread": math.nan}
            changes |= {"error": ErrorClass.unknown, "message": "failure made up by the noise"}
        return replace(result, outcome=replace(result.outcome, **changes))
