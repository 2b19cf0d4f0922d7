"""Fastest latency of each family of trials so far: slower trials are cut short against it."""

from __future__ import annotations

import math

from measure.pool import Trial, TrialResult


class BestLatencies:
    """Fastest latencies by family: trials whose latencies are comparable, see `Trial.family`."""

    def __init__(self) -> None:
        self._seconds: dict[tuple[str, str, int, str], float] = {}

    def add(self, result: TrialResult) -> None:
        """Takes the result of a trial into account."""
        if result.ok:
            family = result.trial.family
            self._seconds[family] = min(result.seconds, self._seconds.get(family, math.inf))

    def limit(self, trial: Trial) -> float | None:
        """Returns the seconds to beat: the trial's own limit or its family's fastest latency; None if unknown."""
        best = min(trial.best_seconds or math.inf, self._seconds.get(trial.family, math.inf))
        return best if best < math.inf else None
