"""Which algorithm and schedule each task of a network gets: what may be searched, and what of the records is taken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from autotune.schedule import Schedule
from autotune.tuning.finals import Best, by_algorithm
from autotune.tuning.task import Task
from measure.record import Record
from measure.recordlog import RecordLog
from search_space.hardware import Hardware
from search_space.operators import algorithms as facts
from search_space.operators.base import LIBRARY
from search_space.schedule.trace import Trace
from search_space.space import algorithms_on
from search_space.workloads import Workload

Chosen = Mapping[str, tuple[Schedule, float]]
"""Workload key → schedule and its seconds."""


@dataclass(frozen=True)
class Limits:
    """What algorithms of an executable must keep.

    Attributes:
        algorithms: names to choose from; None: all but those that are chosen by name alone.
        named: further names, of `facts.BY_NAME`, to choose from.
        max_error: greatest error of an algorithm, as a share of the greatest output; None: any of those that are named,
            and up to `algorithms.USUAL_ERROR` where none are.
        max_extra_bytes: by which transformed weights may be larger than the weights, all tasks together; None: any.
        hardware: on which algorithms must have a schedule, where none are named; None: on some.
        open_sizes: whether schedules are for kernels of open sizes, whose definitions must follow from the sizes.
    """

    algorithms: Sequence[str] | None = None
    named: Sequence[str] = ()
    max_error: float | None = None
    max_extra_bytes: int | None = None
    hardware: Hardware | None = None
    open_sizes: bool = False

    def for_open_sizes(self) -> Limits:
        """The same, for kernels of open sizes."""
        return replace(self, open_sizes=True)

    def allowed(self, workload: Workload) -> list[str]:
        """Algorithms of which a workload's kernel may be: never a library's, as an executable stands by itself.

        Where none is left, those that are exact to rounding are.
        """
        own = [name for name in workload.algorithms if name != LIBRARY]
        if self.open_sizes:
            own = [name for name in own if name not in facts.KNOWN_SIZES]
        if self.algorithms is None and self.hardware is not None and len(own) > 1:
            own = [name for name in own if name in algorithms_on(workload, self.hardware)] or own
        exact = [name for name in own if name not in facts.RELATIVE_ERROR]
        named = (*(self.algorithms or ()), *self.named)
        kept = [name for name in own if self.algorithms is None or name in named]
        return facts.within(kept, self.max_error, named) or exact


def extra_bytes(workload: Workload, algorithm: str) -> int:
    """By which an algorithm's constants are larger than the workload's."""
    if algorithm not in facts.RELATIVE_ERROR:
        return 0
    anchor = workload.anchor
    return facts.extra_bytes(anchor.args, anchor.inputs[1].shape, algorithm)


def select(
    tasks: Sequence[Task], records: Sequence[Record], limits: Limits | None = None
) -> dict[str, tuple[Schedule, float]]:
    """The fastest schedules of the tasks that keep the limits.

    Where constants would take too much memory, the tasks that lose least time for each byte go without, one by one.

    Args:
        tasks: of a network.
        records: trials of them.
        limits: to keep; none by default.

    Returns:
        Workload key → schedule and its seconds, for the tasks of which a trial worked.
    """
    limits = limits or Limits()
    allowed = {task.workload.key: limits.allowed(task.workload) for task in tasks}
    given = {key: RecordLog() for key in allowed}
    for record in records:
        if record.algorithm in allowed.get(record.workload_key, ()):
            given[record.workload_key].append(record)
    by_task = {key: by_algorithm(list(found)) for key, found in given.items()}
    chosen = {key: next(iter(found.values())) for key, found in by_task.items() if found}
    if limits.max_extra_bytes is not None:
        _shrink(tasks, by_task, chosen, limits.max_extra_bytes)
    return {
        key: (Schedule(best.record.algorithm, Trace.from_json(best.record.trial.trace)), best.seconds)
        for key, best in chosen.items()
    }


def _shrink(
    tasks: Sequence[Task], by_task: Mapping[str, Mapping[str, Best]], chosen: dict[str, Best], most: int
) -> None:
    known = {task.workload.key: task for task in tasks}

    def extra(record: Record) -> int:
        task = known[record.workload_key]
        return task.weight * extra_bytes(task.workload, record.algorithm)

    while sum(extra(best.record) for best in chosen.values()) > most:
        moves = [
            (known[key].weight * (other.seconds - now.seconds) / (extra(now.record) - extra(other.record)), key, other)
            for key, now in chosen.items()
            for other in by_task[key].values()
            if extra(other.record) < extra(now.record)
        ]
        if not moves:
            return
        _, key, other = min(moves, key=lambda move: move[:2])
        chosen[key] = other
