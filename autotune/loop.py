"""Rounds over all tasks of a run with one pool; every result is written down as it comes."""

from __future__ import annotations

import time
from collections.abc import Sequence

from autotune.callbacks import Callback, Progress
from autotune.finals import ROUNDS
from autotune.interrupt import Interrupt
from autotune.result import TuneResult, peak_flops
from autotune.schedulers import RoundRobin, TaskScheduler, TaskState
from autotune.search.base import NoLegalSchedule
from autotune.tuning import TaskTuning
from measure.database import Database
from measure.pool import MeasurePool, Trial
from measure.record import Record

_POLL = 0.25
"""Seconds after which a wait for results looks whether the user wants to stop."""


def run_rounds(
    tasks: Sequence[TaskTuning],
    pool: MeasurePool,
    database: Database | None = None,
    callbacks: Sequence[Callback] = (),
    scheduler: TaskScheduler | None = None,
    budget: int | None = None,
) -> list[TuneResult]:
    """Tunes tasks until each has its trials; Ctrl-C ends it early with every finished trial kept.

    A task without a legal schedule is left with its `failure`, and the others go on.

    Args:
        tasks: what to tune, in any state.
        pool: measures; nothing is outstanding in it.
        database: where records go; None: they are only in the results.
        callbacks: who is told.
        scheduler: says whose round is next; in turn by default.
        budget: trials of all tasks together, those resumed included; None: each has its own.

    Returns:
        A result for each task, in order.
    """
    teller = _Teller(tasks, callbacks, budget)
    for callback in callbacks:
        callback.on_start(tasks)
    scheduler = scheduler or RoundRobin()
    if tasks and not all(task.done for task in tasks):
        pool.warm_up(tasks[0].settings.threads)
    with Interrupt() as interrupt:
        while not interrupt.requested:
            left = None if budget is None else budget - sum(len(task.records) for task in tasks)
            number = None if left is not None and left <= 0 else scheduler.choose([state_of(task) for task in tasks])
            if number is None:
                break
            task = tasks[number]
            try:
                trials = task.propose(left)
            except NoLegalSchedule:
                continue
            start = time.perf_counter()
            records = _measure(task, trials, pool, database, teller, interrupt)
            task.settle(records, time.perf_counter() - start)
            teller.round(task)
        if not interrupt.requested:
            _finals(tasks, pool, database, interrupt)
        stopped = interrupt.requested
    results = [task.result(stopped) for task in tasks]
    for callback in callbacks:
        callback.on_finish(results)
    return results


def _finals(tasks: Sequence[TaskTuning], pool: MeasurePool, database: Database | None, interrupt: Interrupt) -> None:
    """Times the fastest candidates of every task again, see `autotune.finals`."""
    by_key = {task.task.workload.key: task for task in tasks}
    for turn in range(ROUNDS):
        start = time.perf_counter()
        pool.submit([trial for task in by_key.values() for trial in task.finalists(turn)])
        while pool.outstanding:
            if interrupt.requested:
                pool.cancel()
            for result in pool.results(0.0 if interrupt.requested else _POLL):
                record = by_key[result.trial.workload_key].final(result)
                if database is not None:
                    database.append(record)
        spent = time.perf_counter() - start
        for task in by_key.values():
            task.phases["measure"] += spent / len(by_key)


def state_of(task: TaskTuning) -> TaskState:
    """What a scheduler sees of a task."""
    workload = task.task.workload
    anchor = workload.args["anchor"]["operator"] if workload.operator == "fused" else workload.operator
    # Definitions of their own have no kin, and what has other algorithms, such as Winograd's, reaches other rates.
    kind = workload.key if anchor == "tensors" else f"{anchor}: {', '.join(workload.algorithms)}"
    return TaskState(task.task.weight, workload.flops, kind, tuple(task.history), task.done)


def _measure(
    task: TaskTuning,
    trials: Sequence[Trial],
    pool: MeasurePool,
    database: Database | None,
    teller: _Teller,
    interrupt: Interrupt,
) -> list[Record]:
    """Records of the trials that were finished, in the order of completion."""
    records: list[Record] = []
    pool.submit(trials)
    while pool.outstanding:
        if interrupt.requested:
            pool.cancel()
        for result in pool.results(0.0 if interrupt.requested else _POLL):
            record = task.record(result)
            if database is not None:
                database.append(record)
            records.append(record)
            teller.trial(task, record)
    return records


class _Teller:
    """Keeps count and tells the callbacks."""

    def __init__(self, tasks: Sequence[TaskTuning], callbacks: Sequence[Callback], budget: int | None) -> None:
        self._tasks, self._callbacks, self._budget = tasks, callbacks, budget
        self._start = time.perf_counter()
        self._pending = 0  # results of the present round
        self._best = float("nan")

    def trial(self, task: TaskTuning, record: Record) -> None:
        self._pending += 1
        if record.ok and not self._best <= record.seconds:
            self._best = record.seconds
        for callback in self._callbacks:
            callback.on_trial(self._progress(task), record)

    def round(self, task: TaskTuning) -> None:
        self._pending, self._best = 0, float("nan")
        for callback in self._callbacks:
            callback.on_round(self._progress(task))

    def _progress(self, task: TaskTuning) -> Progress:
        best = task.best_seconds
        if not best <= self._best and self._best == self._best:
            best = self._best
        rate = task.task.workload.flops / best
        return Progress(
            task=task.task.name,
            task_trials=len(task.records) + self._pending,
            task_total=task.total if self._budget is None else None,
            trials=sum(len(other.records) for other in self._tasks) + self._pending,
            total=self._budget or sum(other.total for other in self._tasks),
            best_seconds=best,
            gflops=rate * 1e-9,
            peak_share=rate / peak_flops(task.space.hardware, task.settings.threads),
            seconds=time.perf_counter() - self._start,
            rank_accuracy=task.guide.rank_accuracy,
        )
