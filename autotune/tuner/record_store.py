"""Store of measured schedules."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from autotune.schedule import Schedule
from autotune.schedule_store import ScheduledWorkload
from autotune.tuner.finals import standings
from measure.record import Record
from measure.recordlog import RecordLog
from search_space.schedule.trace import Trace
from search_space.workloads import Workload
from targets.base import Target


class RecordStore:
    """Measured schedules, in the order of `finals.standings`.

    Args:
        records: trials, failures included, and timings of finalists, in order of time.
        list_algorithms: function workload → algorithms that its schedule may have.
    """

    def __init__(self, records: Iterable[Record], list_algorithms: Callable[[Workload], Collection[str]]) -> None:
        self._list_algorithms = list_algorithms
        self._records: dict[tuple[str, str], RecordLog] = {}
        for record in records:
            self._append(record)

    def best(self, workload: Workload, target: Target, k: int | None = 1) -> Sequence[ScheduledWorkload]:
        log = self._records.get((workload.key, target.name))
        if log is None:
            return ()
        allowed = self._list_algorithms(workload)  # records of other algorithms must not affect the ranking
        return [
            ScheduledWorkload(
                workload,
                target,
                Schedule(best.record.algorithm, Trace.from_json(best.record.trial.trace)),
                best.seconds,
                record=best.record,
            )
            for best in standings(record for record in log if record.algorithm in allowed)[:k]
        ]

    def add(self, record: ScheduledWorkload) -> bool:
        """Adds a measured schedule; refuses an estimated one."""
        if record.record is not None:
            self._append(record.record)
        return record.record is not None

    def _append(self, record: Record) -> None:
        self._records.setdefault((record.workload_key, record.target), RecordLog()).append(record)
