"""Which algorithm and schedule each task of a network gets: what may be searched, and what of the records is taken."""

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
    tasks: Sequence[Task], store: ScheduleStore, settings: Settings, limits: Limits | None = None
) -> MemoryStore:
    """Selects the fastest schedules of the tasks such that transformed weights keep the limit of memory.

    Where constants would take too much memory, the tasks that lose least time for each byte go without, one by one.

    Args:
        tasks: of a network.
        store: of schedules that are allowed.
        settings: of the run, which say the target of each task.
        limits: whose `max_extra_bytes` is kept; None: none.

    Returns:
        The schedules of the tasks that the store has any of.
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
    chosen: dict[str, ScheduledWorkload],
    alternatives: Mapping[str, Sequence[ScheduledWorkload]],
    counts: Mapping[str, int],
    most: int,
) -> None:
    """Exchanges schedules, by the workload's key, until their constants take at most so many bytes more than weights.

    One by one, that goes which loses least time for each byte.

    Args:
        chosen: schedules to change.
        alternatives: to each of them; those of others stay.
        counts: how often each workload runs.
        most: bytes.
    """

    def extra(each: ScheduledWorkload) -> int:
        return counts[each.workload.key] * extra_bytes(each.workload, each.algorithm)

    while sum(map(extra, chosen.values())) > most:
        moves = [
            (counts[key] * (other.seconds - chosen[key].seconds) / (extra(chosen[key]) - extra(other)), key, other)
            for key, others in alternatives.items()
            for other in others
            if extra(other) < extra(chosen[key])
        ]
        if not moves:
            return
        _, key, other = min(moves, key=lambda move: move[:2])
        chosen[key] = other
