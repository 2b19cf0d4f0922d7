"""Tuning of several tasks with one pool, for all callers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from enum import Enum
from typing import Any

from autotune.tuner import schedulers
from autotune.tuner.callbacks import Callback
from autotune.tuner.loop import run_rounds
from autotune.tuner.pools import make_pool
from autotune.tuner.preparation import prepare_task, reusable_records
from autotune.tuner.result import AllTrialsFailed, TuneResult
from autotune.tuner.schedulers import Gradient, TaskScheduler
from autotune.tuner.settings import Settings, explain_roofline
from autotune.tuner.task import Task
from autotune.tuner.task_tuning import TaskTuning
from costmodel.transfer import Source
from measure.database import Database
from measure.notices import notice_if_slow
from measure.pool import MeasurePool
from measure.record import Record
from search_space.space import SearchSpace
from search_space.workloads import Workload

log = logging.getLogger(__name__)


class Need(Enum):
    """Outcome of a task without which tuning fails."""

    NOTHING = "nothing"
    SPACE = "a legal candidate before anything is measured"
    RESULT = "a candidate that works"


class TuningStop(Exception):
    """Exception if the caller's `stop` became true before there were results."""


@dataclass(frozen=True)
class TaskRequest:
    """Task with its settings and requirements.

    Attributes:
        task: task to tune.
        settings: settings of the run, see `Settings.of`.
        space: search space; None: that of the template that the settings name, or all that sketch rules make.
        algorithms: algorithms of the workload that sketch rules are applied to; None: those that the settings name.
        need: outcome whose absence is an error.
        guided: whether a cost model learns from the trials; False for candidates drawn at random.
        reusable: function that selects records of earlier runs for reuse; None: all of this workload.
    """

    task: Task
    settings: Settings
    space: SearchSpace | None = None
    algorithms: Sequence[str] | None = None
    need: Need = Need.SPACE
    guided: bool = True
    reusable: Callable[[Record], bool] | None = None


def tune_tasks(
    requests: Sequence[TaskRequest],
    pool: MeasurePool | None = None,
    database: Database | None = None,
    *,
    resume: bool = True,
    source: Source | None = None,
    schedule: Callable[[Sequence[TaskTuning]], TaskScheduler | None] = lambda tunings: None,
    budget: int | None = None,
    callbacks: Sequence[Callback] = (),
    stop: Callable[[], bool] = lambda: False,
    say: Callable[[str], None] = log.warning,
) -> list[TuneResult]:
    """Prepares tasks, and measures candidates of them in rounds until each has its trials.

    Args:
        requests: tasks to tune.
        pool: pool that measures, which stays open; None: one that the first request's settings name, open during the
            call.
        database: database of the records, new and of earlier runs; None: no database.
        resume: whether to reuse records of the database.
        source: source of `settings.cost_model.transfer`.
        schedule: function that is called once with the prepared tasks, whose strategies it may change; returns the
            scheduler that chooses the task of each round, or None: round robin.
        budget: trials of all tasks together, resumed ones included; None: each has its own.
        callbacks: listeners.
        stop: function that ends the run early like Ctrl-C; called for each task, and several times a second while
            trials are measured.
        say: function that shows the user what takes long, and why no learned model scores the candidates.

    Returns:
        A result for each request, in order; after Ctrl-C from the measurements so far.

    Raises:
        NoLegalSchedule: a task that needs a legal candidate has none; the name of the task is `task` of the error.
        AllTrialsFailed: no candidate of a task that needs a result works.
        Stopped: `stop` was true before all tasks were prepared.
        ValueError: an option is out of range.
        PoolError: the pool cannot start.
    """
    if not requests:
        return []
    measure = requests[0].settings.measure
    models = [request.settings.cost_model for request in requests if request.guided and request.settings.trials]
    for why in dict.fromkeys(map(explain_roofline, models)):
        if why:
            say(why)
    with notice_if_slow(f"preparing the search spaces of {len(requests)} task{'s' * (len(requests) > 1)}", say):
        tunings = [prepare_request(request, database if resume else None, source, stop) for request in requests]
    scheduler = schedule(tunings)
    used = make_pool(measure) if pool is None else pool
    with nullcontext() if used is pool or used is measure.pool else used:
        results = run_rounds(tunings, used, database, callbacks, scheduler, budget, stop)
    for request, tuning, result in zip(requests, tunings, results, strict=True):
        if request.need is Need.RESULT:
            _check_space(tuning)
            if result.problem:
                raise AllTrialsFailed(result)
    return results


def tune_kernels(
    tasks: Sequence[Task],
    settings: Settings,
    list_algorithms: Callable[[Workload], Sequence[str]],
    pool: MeasurePool | None = None,
    database: Database | None = None,
    **options: Any,
) -> list[TuneResult]:
    """Tunes the tasks of a network, which share the trials of the settings.

    The size of a round is such that half of the trials are left after a round for each task.

    Args:
        tasks: tasks of the network.
        settings: settings of the run; `trials` are those of all tasks together.
        list_algorithms: function workload → algorithms that its kernel may have.
        pool, database, options: arguments of `tune_tasks`.

    Raises:
        NoLegalSchedule, Stopped, ValueError, PoolError: errors of `tune_tasks`.
    """
    trials, search = settings.trials, settings.search
    batch = min(search.batch, max(4, trials // (2 * max(1, len(tasks)))))
    settings = settings.searching(batch=batch)
    requests = [TaskRequest(task, settings, algorithms=list_algorithms(task.workload)) for task in tasks]
    gradient = search.scheduler == "gradient"
    scheduler = Gradient(patience=search.patience) if gradient else schedulers.get(search.scheduler)()
    return tune_tasks(requests, pool, database, schedule=lambda tunings: scheduler, budget=trials, **options)


def prepare_request(
    request: TaskRequest,
    database: Database | None = None,
    source: Source | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> TaskTuning:
    """Prepares the task of a request for tuning; for the arguments and errors see `tune_tasks`."""
    if stop():
        raise TuningStop
    own = request.settings.of(request.task)
    records = reusable_records(database, request.task.workload, own)
    if request.reusable is not None:
        records = [record for record in records if request.reusable(record)]
    tuning = prepare_task(
        request.task,
        request.settings,
        records,
        request.space,
        request.algorithms,
        source,
        guided=request.guided,
    )
    if request.need is not Need.NOTHING:
        _check_space(tuning)
    return tuning


def _check_space(tuning: TaskTuning) -> None:
    """Raises the refusal of a task without a legal candidate."""
    if tuning.failure is not None:
        tuning.failure.task = tuning.task.name
        raise tuning.failure
