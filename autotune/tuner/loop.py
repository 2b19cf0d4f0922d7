"""Rounds over all tasks of a run with one pool; every result is recorded when it arrives.

If a pool of many machines needs more trials than a round has, rounds of other tasks are begun beside it.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from autotune.tuner.callbacks import Callback, Progress
from autotune.tuner.finals import ROUNDS, Best
from autotune.tuner.interrupt import Interrupt
from autotune.tuner.result import TuneResult, peak_share, rate_text
from autotune.tuner.schedulers import RoundRobin, TaskScheduler, TaskState
from autotune.tuner.search.base import NoLegalSchedule
from autotune.tuner.task_tuning import TaskTuning
from measure.database import Database
from measure.errors import PoolError
from measure.pool import MeasurePool, TrialResult
from measure.record import Record

log = logging.getLogger(__name__)

_POLL = 0.25
"""Seconds after which a wait for results checks whether the user wants to stop."""


def run_rounds(
    tasks: Sequence[TaskTuning],
    pool: MeasurePool,
    database: Database | None = None,
    callbacks: Sequence[Callback] = (),
    scheduler: TaskScheduler | None = None,
    budget: int | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> list[TuneResult]:
    """Tunes tasks until each has its trials; Ctrl-C ends it early, and all finished trials are kept.

    A task without a legal schedule gets a `failure`, and the others go on.

    Args:
        tasks: tasks to tune, in any state.
        pool: pool that measures; no trial is outstanding in it.
        database: database of the records; None: they are only in the results.
        callbacks: listeners.
        scheduler: scheduler that chooses the task of the next round; round robin by default.
        budget: trials of all tasks together, resumed ones included; None: each has its own.
        stop: function that ends the run early like Ctrl-C; called several times a second while trials are measured.

    Returns:
        A result for each task, in order.
    """
    _warn_of_unmatched(tasks)
    for callback in callbacks:
        callback.on_start(tasks)
    scheduler = scheduler or RoundRobin()
    if tasks and not all(task.done for task in tasks):
        pool.warm_up(tasks[0].settings.threads)
    with Interrupt(stop) as interrupt:
        _Rounds(tasks, pool, database, callbacks, scheduler, budget).run(interrupt)
        if not interrupt.requested:
            _finals(tasks, pool, database, callbacks, interrupt)
        stopped = interrupt.requested
    results = [task.result(stopped) for task in tasks]
    for callback in callbacks:
        callback.on_finish(results)
    return results


def _warn_of_unmatched(tasks: Sequence[TaskTuning]) -> None:
    """Warns of sketch rules from outside that decide no stage of any task."""
    for name in dict.fromkeys(name for task in tasks for name in task.space.unmatched_rules):
        if all(name in task.space.unmatched_rules for task in tasks):
            log.warning(
                "sketch rule %r decides no stage of %s: it matches none, or a rule in front of it does",
                name,
                tasks[0].task.workload if len(tasks) == 1 else f"{len(tasks)} tasks",
            )


def _finals(
    tasks: Sequence[TaskTuning],
    pool: MeasurePool,
    database: Database | None,
    callbacks: Sequence[Callback],
    interrupt: Interrupt,
) -> None:
    """Times the fastest candidates of every task again, see `autotune.tuner.finals`, and reports the best."""
    begin = time.perf_counter()
    by_key = {task.task.workload.key: task for task in tasks}
    before = {key: len(task.finals) for key, task in by_key.items()}
    for number in range(ROUNDS):
        start = time.perf_counter()
        pool.submit([trial for task in by_key.values() for trial in task.finalists(number)])
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
    trials = sum(len(task.records) for task in tasks)
    for task in tasks:
        if len(task.finals) > before[task.task.workload.key]:
            done = len(task.records)
            seconds = time.perf_counter() - begin
            progress = make_progress(task, task.standing, done, None, trials, trials, seconds)
            for callback in callbacks:
                callback.on_finals(progress)


def make_progress(
    task: TaskTuning,
    best: Best | None,
    task_trials: int,
    task_total: int | None,
    trials: int,
    total: int,
    seconds: float,
) -> Progress:
    """Makes the `Progress` of a task whose best candidate is `best`; None: no trial has worked yet."""
    workload = task.task.workload
    gflops = share = math.nan
    if best is not None:
        gflops = workload.flops / best.seconds * 1e-9
        algorithm, hardware = best.record.algorithm, task.space.hardware
        share = peak_share(workload, algorithm, best.seconds, hardware, task.settings.threads)
    return Progress(
        task=task.task.name,
        task_trials=task_trials,
        task_total=task_total,
        trials=trials,
        total=total,
        best_seconds=math.nan if best is None else best.seconds,
        gflops=gflops,
        peak_share=share,
        seconds=seconds,
        rank_accuracy=task.scorer.rank_accuracy,
        rate="" if best is None else rate_text(gflops, workload, best.record.algorithm),
    )


def make_state(task: TaskTuning, under_way: bool = False) -> TaskState:
    """Describes a task for a scheduler; a task with a round in progress cannot get another one."""
    workload = task.task.workload
    anchor = workload.anchor.operator
    # Custom definitions have no similar tasks, and those with other algorithms, such as Winograd's, reach other rates.
    kind = workload.key if anchor == "tensors" else f"{anchor}: {', '.join(workload.algorithms)}"
    return TaskState(task.task.weight, workload.flops, kind, tuple(task.history), task.done or under_way)


@dataclass
class _Round:
    """Round of one task in progress.

    Attributes:
        task: the task.
        missing: trace keys of the trials that have no result yet.
        records: records of the trials with results, in order of arrival.
        best: the fastest of them; None if none has worked.
        seconds: wall time spent on it, a fair share if other rounds were in progress.
    """

    task: TaskTuning
    missing: set[str]
    records: list[Record] = field(default_factory=list)
    best: Record | None = None
    seconds: float = 0.0


class _Rounds:
    """Rounds in progress: one if it keeps the pool busy, else one of each of several tasks."""

    def __init__(
        self,
        tasks: Sequence[TaskTuning],
        pool: MeasurePool,
        database: Database | None,
        callbacks: Sequence[Callback],
        scheduler: TaskScheduler,
        budget: int | None,
    ) -> None:
        self._tasks, self._pool, self._database = tasks, pool, database
        self._callbacks, self._scheduler, self._budget = callbacks, scheduler, budget
        self._rounds: dict[int, _Round] = {}  # number of a task -> its round, in order of their beginning
        self._trial_count = sum(len(task.records) for task in tasks)
        self._total = 0  # number of trials wanted
        self._start = time.perf_counter()

    def run(self, interrupt: Interrupt) -> None:
        """Runs rounds until the scheduler, the budget or the user ends them."""
        while not interrupt.requested:
            while not self._rounds or self._pool.outstanding < self._pool.capacity:
                if interrupt.requested or not self._begin():
                    break
            if not self._rounds:
                return
            self._take(_POLL)
        self._pool.cancel()
        while self._pool.outstanding:
            self._take(0.0)
        for number in list(self._rounds):
            self._settle(number)

    def _begin(self) -> bool:
        """Begins a round of one more task; returns False if it cannot."""
        missing = sum(len(round_.missing) for round_ in self._rounds.values())
        left = None if self._budget is None else self._budget - self._trial_count - missing
        if left is not None and left <= 0:
            return False
        number = self._scheduler.choose(
            [make_state(task, under_way=number in self._rounds) for number, task in enumerate(self._tasks)]
        )
        if number is None:
            return False
        task = self._tasks[number]
        try:
            trials = task.propose(left)
        except NoLegalSchedule:
            return True
        start = time.perf_counter()
        self._rounds[number] = _Round(task, {trial.trace_key for trial in trials})
        self._pool.submit(trials)
        self._rounds[number].seconds = time.perf_counter() - start
        self._count()
        if not trials:
            self._settle(number)
        return True

    def _take(self, timeout: float) -> None:
        """Records the results that arrive; settles the rounds that are complete."""
        start, rounds = time.perf_counter(), list(self._rounds.values())
        self._record(self._pool.results(timeout))
        spent = time.perf_counter() - start
        for round_ in rounds:
            round_.seconds += spent / len(rounds)
        for number in [number for number, round_ in self._rounds.items() if not round_.missing]:
            self._settle(number)

    def _record(self, results: Sequence[TrialResult]) -> None:
        """Records results, and calls the callbacks."""
        rounds, records = [], []
        for result in results:
            rounds.append(self._find_round(result))
            rounds[-1].missing.remove(result.trial.trace_key)
            records.append(rounds[-1].task.record(result))
        if self._database is not None:
            records = self._database.extend(records)
        for round_, record in zip(rounds, records, strict=True):
            round_.records.append(record)
            self._trial_count += 1
            if record.ok and (round_.best is None or record.seconds < round_.best.seconds):
                round_.best = record
            for callback in self._callbacks:
                callback.on_trial(self._progress(round_), record)

    def _find_round(self, result: TrialResult) -> _Round:
        """Returns the round that a result belongs to; trials that are equal in all respects may change places."""
        for round_ in self._rounds.values():
            if result.trial.trace_key in round_.missing and round_.task.measures(result.trial):
                return round_
        raise PoolError(f"`results` must be of trials that were submitted, but got trace_key={result.trial.trace_key}")

    def _settle(self, number: int) -> None:
        """Applies the results of a round that is complete, or was interrupted."""
        round_ = self._rounds.pop(number)
        round_.task.settle(round_.records, round_.seconds)
        self._count()
        for callback in self._callbacks:
            callback.on_round(self._progress(replace(round_, records=[], best=None)))

    def _count(self) -> None:
        """Counts the trials wanted; a task whose space is exhausted wants fewer."""
        self._total = self._budget or sum(task.total for task in self._tasks)

    def _progress(self, round_: _Round) -> Progress:
        task = round_.task
        # A trial faster than all before it ranks first, whatever was timed again.
        first = round_.best
        newer = first is not None and not task.fastest <= first.seconds
        return make_progress(
            task,
            Best(first.seconds, first, (first,)) if first is not None and newer else task.standing,
            len(task.records) + len(round_.records),
            task.total if self._budget is None else None,
            self._trial_count,
            self._total,
            time.perf_counter() - self._start,
        )
