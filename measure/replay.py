"""Replay pool: trials answered from a table, so that searches compare with no hardware and no clock."""

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
    """A trial that the table has no answer to."""

    def __str__(self) -> str:
        return str(self.args[0])


class ReplayPool(MeasurePool):
    """Answers at once, in the order of submission.

    Args:
        table: trace key -> seconds; NaN for a candidate that failed.

    Raises:
        ValueError: seconds that are no latency.
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
        self._submitted = 0
        self._closed = False

    @classmethod
    def of(cls, spec: str, token_file: str | None = None, tls_ca: str | None = None) -> ReplayPool:
        """The pool of `replay:FILE`, which knows what a records file knows.

        Raises:
            ValueError: no file.
            RecordError: a file that cannot be read.
        """
        path = spec.partition(":")[2]
        if not path:
            raise ValueError(f"`pool` must be 'replay:FILE' with a records file, but got pool={spec!r}")
        with Database(path, readonly=True) as database:
            return cls.from_records(database)

    @classmethod
    def from_records(cls, records: Iterable[Record]) -> ReplayPool:
        """Pool that knows what the records know; several of one candidate answer in turn, the last one for good.

        Candidates are told apart by workload, target, threads, cache state and trace.
        """
        pool = cls({})
        for record in records:
            answer = replace(record.outcome, host={})
            pool._answers.setdefault(_identity(record.trial), deque()).append(answer)
        return pool

    def submit(self, trials: Sequence[Trial]) -> None:
        """Answers the trials.

        Raises:
            ReplayError: a trial outside the table; none of `trials` is taken in then.
        """
        if self._closed:
            raise PoolError("`submit` must be called on an open pool, but got closed=True")
        answers = [self._answer(trial, self._submitted + place) for place, trial in enumerate(trials)]
        self._ready += answers
        self._submitted += len(answers)

    def results(self, timeout: float | None = None) -> list[TrialResult]:
        """All answers not fetched before; never waits."""
        ready, self._ready = self._ready, []
        return ready

    def cancel(self) -> None:
        """Does nothing: every trial is finished when it is submitted."""

    def close(self) -> None:
        """Takes no more trials; may be called twice."""
        self._ready.clear()
        self._closed = True

    @property
    def outstanding(self) -> int:
        """Trials submitted whose results were not returned yet."""
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
    """What a table says of a candidate."""
    if math.isnan(seconds):
        return Outcome.failed(ErrorClass.unknown, "failed in the replay table")
    return Outcome((seconds,), seconds, spread=0.0, max_error=0.0)


def _identity(trial: Trial) -> tuple[str, ...]:
    workload_key, target, threads, cache = trial.family
    return (workload_key, target, str(threads), cache, trial.algorithm, trial.trace_key)
