"""The fastest latency of each family of trials so far: what others are cut short against."""

from __future__ import annotations

import math

from measure.pool import Trial, TrialResult


class BestLatencies:
    """Fastest latencies by what trials must share for their latencies to be comparable, see `Trial.family`."""

    def __init__(self) -> None:
        self._seconds: dict[tuple[str, str, int, str], float] = {}

    def add(self, result: TrialResult) -> None:
        """Takes a result into account."""
        if result.ok:
            family = result.trial.family
            self._seconds[family] = min(result.seconds, self._seconds.get(family, math.inf))

    def limit(self, trial: Trial) -> float | None:
        """Seconds to beat: the trial's own limit, or what was measured since if that is less; None: not known."""
        best = min(trial.best_seconds or math.inf, self._seconds.get(trial.family, math.inf))
        return best if best < math.inf else None
