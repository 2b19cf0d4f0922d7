"""Selection of the algorithm and schedule of each task: allowed algorithms, and the fastest of the records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from autotune.schedule_store import MemoryStore, ScheduledWorkload, ScheduleStore
from autotune.tuner.settings import Settings
from autotune.tuner.task import Task
from search_space.hardware import Hardware
from search_space.operators import algorithms as facts
from search_space.operators.base import LIBRARY
from search_space.space import algorithms_on
from search_space.workloads import Workload


@dataclass(frozen=True)
class Limits:
    """Limits of the algorithms of an executable.

    Attributes:
        algorithms: names to choose from; None: all except those that are chosen by name only.
        extra_algorithms: additional names, of `facts.BY_NAME`, to choose from.
        max_error: greatest error of an algorithm, as a share of the greatest output; None: any error of a named
            algorithm, and up to `algorithms.USUAL_ERROR` for others.
        max_extra_bytes: number of bytes by which transformed weights may exceed the weights, all tasks together; None:
            any.
        hardware: hardware on which algorithms must have a schedule, unless they are named; None: no such check.
        open_sizes: whether schedules are for kernels of open sizes, whose definitions must follow from the sizes.
    """

    algorithms: Sequence[str] | None = None
    extra_algorithms: Sequence[str] = ()
    max_error: float | None = None
    max_extra_bytes: int | None = None
    hardware: Hardware | None = None
    open_sizes: bool = False

    def for_open_sizes(self) -> Limits:
        """Returns these limits for kernels of open sizes."""
        return replace(self, open_sizes=True)

    def list_algorithms(self, workload: Workload) -> list[str]:
        """Lists the algorithms that a workload's kernel may use: never a library's, as an executable needs no library.

        If no algorithm is left, those that are exact up to rounding are allowed.
        """
        own = [name for name in workload.algorithms if name != LIBRARY]
        if self.open_sizes:
            own = [name for name in own if name not in facts.KNOWN_SIZES]
        if self.algorithms is None and self.hardware is not None and len(own) > 1:
            own = [name for name in own if name in algorithms_on(workload, self.hardware)] or own
        exact = [name for name in own if name not in facts.RELATIVE_ERROR]
        named = (*(self.algorithms or ()), *self.extra_algorithms)
        kept = [name for name in own if self.algorithms is None or name in named]
        return facts.within(kept, self.max_error, named) or exact


def extra_bytes(workload: Workload, algorithm: str) -> int:
    """Returns the number of bytes by which an algorithm's constants exceed the workload's."""
    if algorithm not in facts.RELATIVE_ERROR:
        return 0
    anchor = workload.anchor
    return facts.extra_bytes(anchor.args, anchor.inputs[1].shape, algorithm)


def select(
    tasks: Sequence[Task], store: ScheduleStore, settings: Settings, limits: Limits | None = None
) -> MemoryStore:
    """Selects the fastest schedules of the tasks such that transformed weights keep the limit of memory.

    While constants take too much memory, tasks lose such algorithms one by one, in the order of least time lost per
    byte.

    Args:
        tasks: tasks of a network.
        store: store of allowed schedules.
        settings: settings of the run, which name the target of each task.
        limits: limits of which `max_extra_bytes` applies here; None: no limit.

    Returns:
        The schedules of the tasks that the store has schedules of.
    """
    targets = {task.workload.key: settings.of(task).target for task in tasks}
    chosen = {
        task.workload.key: best for task in tasks for best in store.best(task.workload, targets[task.workload.key])
    }
    if limits is None or limits.max_extra_bytes is None:
        return MemoryStore(chosen.values())
    alternatives: dict[str, dict[str, ScheduledWorkload]] = {key: {} for key in chosen}
    for task in tasks:
        for each in store.best(task.workload, targets[task.workload.key], None):
            alternatives[task.workload.key].setdefault(each.algorithm, each)
    shrink(
        chosen,
        {key: list(each.values()) for key, each in alternatives.items()},
        {task.workload.key: task.weight for task in tasks},
        limits.max_extra_bytes,
    )
    return MemoryStore(chosen.values())


def shrink(
    schedules: dict[str, ScheduledWorkload],
    alternatives: Mapping[str, Sequence[ScheduledWorkload]],
    counts: Mapping[str, int],
    most: int,
) -> None:
    """Replaces schedules, by the workload's key, until their constants exceed the weights by at most so many bytes.

    In each step, the replacement that loses least time per byte is made.

    Args:
        schedules: schedules to change.
        alternatives: alternatives to each of them; schedules without alternatives stay.
        counts: number of runs of each workload.
        most: largest number of bytes beyond the weights.
    """

    def extra(each: ScheduledWorkload) -> int:
        return counts[each.workload.key] * extra_bytes(each.workload, each.algorithm)

    while sum(map(extra, schedules.values())) > most:
        moves = [
            (
                counts[key] * (other.seconds - schedules[key].seconds) / (extra(schedules[key]) - extra(other)),
                key,
                other,
            )
            for key, others in alternatives.items()
            for other in others
            if extra(other) < extra(schedules[key])
        ]
        if not moves:
            return
        _, key, other = min(moves, key=lambda move: move[:2])
        schedules[key] = other
