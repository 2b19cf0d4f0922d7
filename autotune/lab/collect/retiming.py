"""Timing all programs of a task again, in interleaved rounds, once they are measured.

A collection takes so long that its machine changes speed meanwhile, by clock rates and other users. The rounds of a
task are spread over all that time. So the programs of each task are timed again against each other, see
`measure.interleaved`: slow ones as carefully as fast ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from autotune.tuner.interrupt import Interrupt
from autotune.tuner.task_tuning import TaskTuning
from measure.database import Database
from measure.host import describe_host
from measure.interleaved import InterleavedTimer, InterleavedTiming
from measure.provenance import Kind
from measure.record import Record
from measure.settings import LocalSettings


@dataclass(frozen=True)
class Retiming:
    """Programs of one task that are to be timed again.

    Attributes:
        name: name of the task.
        records: a record of each program whose output was right.
        rounds: bursts of each program.
        threads: threads that kernels run on.
    """

    name: str
    records: Sequence[Record]
    rounds: int
    threads: int

    @staticmethod
    def of(tuning: TaskTuning, records: Sequence[Record], rounds: int) -> Retiming:
        """Selects the programs of a task that are not yet timed again.

        Args:
            tuning: a search of the task.
            records: all records of the task.
            rounds: bursts of each program.
        """
        done = {record.trace_key for record in records if record.provenance.kind is Kind.retimed}
        left: dict[str, Record] = {}
        for record in records:
            if record.ok and record.trace_key not in done:
                left.setdefault(record.trace_key, record)
        return Retiming(tuning.task.name, list(left.values()), rounds, tuning.settings.threads)


def retime(
    tasks: Sequence[Retiming],
    database: Database,
    end: float | None,
    say: Callable[[str], None],
    settings: LocalSettings | None = None,
) -> tuple[int, bool]:
    """Times programs of tasks, one task after the other; finished timings are in the database however it ends.

    Args:
        tasks: tasks in the order of timing.
        database: database that records are added to.
        end: `time.monotonic()` after which no task is begun; None: no limit.
        say: shows a sentence to the user.
        settings: settings of the process that times.

    Returns:
        Programs timed, and whether Ctrl-C ended it.
    """
    host: Mapping[str, object] = describe_host()
    timed, total = 0, sum(len(task.records) for task in tasks)
    with Interrupt() as interrupt:
        for task in tasks:
            if interrupt.requested or (end is not None and time.monotonic() >= end):
                break
            if not task.records:
                continue
            trials, again = [record.to_trial() for record in task.records], iter(task.records)
            with InterleavedTimer(task.threads, InterleavedTiming(task.rounds), settings) as timer:
                for results in timer.groups(trials, lambda: interrupt.requested):
                    now = time.time()
                    known = [next(again).provenance.again(Kind.retimed, now) for _ in results]
                    database.extend([Record.of(*pair, host) for pair in zip(results, known, strict=True)])
                    timed += len(results)
            say(f"{timed}/{total} programs timed again  {task.name}")
        return timed, interrupt.requested
