"""Stores of schedules: each answers which schedule of a workload is the best that it knows.

| store | holds | key |
|---|---|---|
| `tuning.record_store.RecordStore` | measurements, of a records file or of a search | workload, target |
| `tuning.entry_store.EntryStore` | databases, shipped or the user's | workload, target, lanes, threads, cache state |
| `cache.kernels.ChoiceStore` | choices without trials, in the cache | all that a choice depends on |
| `MemoryStore` | one schedule of each workload: of a lock file, of a network's selection | workload, target |

Callers combine them by `OrderedStores`. Caches of machine code are no stores: they hold what is built from a schedule.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from autotune.schedule import Schedule
from search_space.schedule.trace import Trace
from search_space.workloads import Workload
from targets.base import Module, Target

if TYPE_CHECKING:
    from measure.record import Record


@dataclass(frozen=True)
class ScheduledWorkload:
    """A workload with a concrete schedule, and its latency.

    Attributes:
        workload: computation of the schedule.
        target: target that the schedule is for.
        schedule: algorithm and trace.
        seconds: measured latency; of a provisional schedule, the roofline's estimate.
        provisional: whether it was chosen without trials, so that limits of the whole network may replace it.
        record: the measurement; None where the store has none.
        sketch: name of the sketch of the trace; "" where the store has none.
        choices: an index into the table of each decision group of the sketch.
        module: the kernel, if it was built to choose the schedule.
    """

    workload: Workload
    target: Target
    schedule: Schedule
    seconds: float
    provisional: bool = False
    record: Record | None = field(default=None, compare=False)
    sketch: str = ""
    choices: tuple[int, ...] = ()
    module: Module | None = field(default=None, compare=False)

    @property
    def algorithm(self) -> str:
        """Name of the definition that the schedule belongs to."""
        return self.schedule.algorithm

    @property
    def trace(self) -> Trace:
        """Steps of the schedule."""
        return self.schedule.trace


class ScheduleStore(Protocol):
    """Source of schedules of workloads, which may keep further ones."""

    def best(self, workload: Workload, target: Target, k: int | None = 1) -> Sequence[ScheduledWorkload]:
        """Returns at most `k` schedules of a workload on a target, best first; None: all that the store has."""
        ...

    def add(self, record: ScheduledWorkload) -> bool:
        """Adds a schedule, and returns whether the store keeps schedules of its kind."""
        ...


class MemoryStore:
    """One schedule of each workload and target, in memory.

    Args:
        records: initial schedules.
    """

    def __init__(self, records: Iterable[ScheduledWorkload] = ()) -> None:
        self._records: dict[tuple[str, str], ScheduledWorkload] = {}
        for record in records:
            self.add(record)

    def best(self, workload: Workload, target: Target, k: int | None = 1) -> Sequence[ScheduledWorkload]:
        record = self._records.get((workload.key, target.name))
        return () if record is None else (record,)[:k]

    def add(self, record: ScheduledWorkload) -> bool:
        """Adds a schedule, in place of that of its workload and target."""
        self._records[record.workload.key, record.target.name] = record
        return True

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[ScheduledWorkload]:
        return iter(self._records.values())


class OrderedStores:
    """Union of stores, the most trusted first.

    Args:
        stores: stores in order of trust.
    """

    def __init__(self, stores: Sequence[ScheduleStore]) -> None:
        self._stores = tuple(stores)

    def best(self, workload: Workload, target: Target, k: int | None = 1) -> Sequence[ScheduledWorkload]:
        """Returns the schedules of the first store that has any for the workload."""
        answers = (store.best(workload, target, k) for store in self._stores)
        return next((answer for answer in answers if answer), ())

    def add(self, record: ScheduledWorkload) -> bool:
        """Offers a schedule to each store until one keeps it."""
        return any(store.add(record) for store in self._stores)
