"""Replay pool: answers trials from a table, so that searches can be compared without hardware and clock."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from measure.database import Database
from measure.errors import ErrorClass, OutcomeError, PoolError
from measure.outcome import Outcome, check_latencies
from measure.pool import MeasurePool, Trial, TrialResult
from measure.record import Record


class ReplayError(PoolError, KeyError):
    """A trial without an answer in the table."""

    def __str__(self) -> str:
        return str(self.args[0])


class ReplayPool(MeasurePool):
    """A pool that answers at once, in the order of submission.

    Args:
        table: seconds by trace key; NaN for a candidate that failed.

    Raises:
        ValueError: a value is impossible as a latency.
    """

    def __init__(self, table: Mapping[str, float]) -> None:
        for key, seconds in table.items():
            if not math.isnan(seconds):
                try:
                    check_latencies((seconds,))
                except OutcomeError as error:
                    raise ValueError(f"`table` must hold latencies, but {error} (trace_key={key})") from None
        self._answers: dict[tuple[str, ...], deque[Outcome]] = {
            (key,): deque([_outcome(value)]) for key, value in table.items()
        }
        self._ready: list[TrialResult] = []
        self._submitted_count = 0
        self._is_closed = False

    @classmethod
    def of(cls, spec: str, token_file: str | None = None, tls_ca: str | None = None) -> ReplayPool:
        """Makes the pool of `replay:FILE`, which answers from a records file.

        Raises:
            ValueError: `spec` names no file.
            RecordError: the file cannot be read.
        """
        path = spec.partition(":")[2]
        if not path:
            raise ValueError(f"`pool` must be 'replay:FILE' with a records file, but got pool={spec!r}")
        with Database(path, readonly=True) as database:
            return cls.from_records(database)

    @classmethod
    def from_records(cls, records: Iterable[Record]) -> ReplayPool:
        """Makes a pool that answers from records.

        Several records of one candidate answer in turn, the last one for all further trials. Candidates are identified
        by workload, target, threads, cache state, algorithm and trace.
        """
        pool = cls({})
        for record in records:
            answer = replace(record.outcome, host={})
            pool._answers.setdefault(_identity(record.trial), deque()).append(answer)
        return pool

    def submit(self, trials: Sequence[Trial]) -> None:
        """Answers the trials.

        Raises:
            ReplayError: a trial is not in the table; none of `trials` is accepted then.
        """
        if self._is_closed:
            raise PoolError("`submit` must be called on an open pool, but got closed=True")
        answers = [self._answer(trial, self._submitted_count + index) for index, trial in enumerate(trials)]
        self._ready += answers
        self._submitted_count += len(answers)

    def results(self, timeout: float | None = None) -> list[TrialResult]:
        """Returns all answers not fetched before; never waits."""
        ready, self._ready = self._ready, []
        return ready

    def cancel(self) -> None:
        """Does nothing: every trial is finished when it is submitted."""

    def close(self) -> None:
        """Refuses further trials; may be called twice."""
        self._ready.clear()
        self._is_closed = True

    @property
    def outstanding(self) -> int:
        """Number of submitted trials whose results were not returned yet."""
        return len(self._ready)

    def _answer(self, trial: Trial, index: int) -> TrialResult:
        answers = self._answers.get(_identity(trial), self._answers.get((trial.trace_key,)))
        if answers is None:
            raise ReplayError(
                f"`trace` must be in the replay table of {len(self._answers)} entries, "
                f"but got trace_key={trial.trace_key}, workload={trial.workload_key}"
            )
        found = answers.popleft() if len(answers) > 1 else answers[0]
        return TrialResult(trial, index, found)


def _outcome(seconds: float) -> Outcome:
    """Converts a value of the table to an outcome."""
    if math.isnan(seconds):
        return Outcome.from_error(ErrorClass.unknown, "failed in the replay table")
    return Outcome((seconds,), seconds, spread=0.0, max_error=0.0)


def _identity(trial: Trial) -> tuple[str, ...]:
    workload_key, target, threads, cache = trial.family
    return (workload_key, target, str(threads), cache, trial.algorithm, trial.trace_key)
