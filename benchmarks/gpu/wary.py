"""A pool for a device whose time is short: trials get little of it, and sketches that hang twice get no more."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from measure.errors import ErrorClass
from measure.outcome import Outcome
from measure.pool import MeasurePool, Trial, TrialResult

MOST_HANGS = 2


class WaryPool(MeasurePool):
    """A pool that passes trials on to another pool, which is closed with it.

    Args:
        pool: pool that measures.
        seconds: seconds that a trial's checks and timing may take.
        most: time-outs of one sketch of a workload after which its trials fail without being measured.
    """

    def __init__(self, pool: MeasurePool, seconds: float, most: int = MOST_HANGS) -> None:
        self.pool, self.seconds, self.most = pool, seconds, most
        self.hangs: Counter[tuple[str, str]] = Counter()
        self._indices: dict[int, int] = {}
        self._submit_count = self._handed_on = 0
        self._failures: list[TrialResult] = []

    def warm_up(self, threads: int) -> None:
        self.pool.warm_up(threads)

    def submit(self, trials: Sequence[Trial]) -> None:
        accepted = []
        for trial in trials:
            index, self._submit_count = self._submit_count, self._submit_count + 1
            hangs = self.hangs[_sketch_identity(trial)]
            if hangs >= self.most:
                message = f"its sketch ran out of time {hangs} times, and is given up"
                self._failures.append(TrialResult(trial, index, Outcome.from_error(ErrorClass.run_timeout, message)))
                continue
            self._indices[self._handed_on] = index
            self._handed_on += 1
            accepted.append(replace(trial, run_timeout=self.seconds))
        self.pool.submit(accepted)

    def results(self, timeout: float | None = None) -> list[TrialResult]:
        if self._failures:
            results, self._failures = self._failures, []
            return results
        results = [replace(r, index=self._indices.pop(r.index)) for r in self.pool.results(timeout)]
        self.hangs.update(_sketch_identity(r.trial) for r in results if r.error is ErrorClass.run_timeout)
        return results

    def cancel(self) -> None:
        self._failures.clear()
        self.pool.cancel()

    def close(self) -> None:
        self._failures.clear()
        self.pool.close()

    @property
    def outstanding(self) -> int:
        return self.pool.outstanding + len(self._failures)

    @property
    def capacity(self) -> int:
        return self.pool.capacity


def _sketch_identity(trial: Trial) -> tuple[str, str]:
    """Returns the workload, and the trial's schedule without its numbers."""
    return trial.workload_key, json.dumps([trial.algorithm, *map(_without_numbers, trial.trace)], sort_keys=True)


def _without_numbers(value: object) -> object:
    if isinstance(value, dict):
        return {key: _without_numbers(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [_without_numbers(v) for v in value]
    return None if isinstance(value, int | float) else value
