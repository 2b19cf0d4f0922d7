"""Tuning for a distribution of one size: search at some sizes, transfer to the others, time all at all, select a few.

1. At a few sizes schedules are searched as by `autotune.tune`.
2. At the others, a search with few trials begins with candidates that are like the fastest of their neighbours, with
   fitted factors (`carry`).
3. The fastest traces are opened: a trace holds from some size on, with the tails that this needs (`opening`).
4. Each is timed at every size for which it holds, by the kernel that will run (`clock`).
5. A few that together make the objective small are selected (`choice`); each serves the sizes where it is the fastest.

DietCode (Zheng et al., MLSys 2022) searches micro-kernels that serve a distribution of shapes together; here the
sketches and the search are those of known sizes.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from autotune.tuner.callbacks import Callback
from autotune.tuner.finals import finalists
from autotune.tuner.interrupt import Interrupt
from autotune.tuner.pools import make_pool
from autotune.tuner.preparation import open_source
from autotune.tuner.result import TuneResult
from autotune.tuner.schedulers import TaskScheduler
from autotune.tuner.settings import Settings
from autotune.tuner.sizes.carry import CarryStrategy, InOrder, like_neighbours
from autotune.tuner.sizes.choice import Objective, check_objective, choose_schedules, divide_sizes
from autotune.tuner.sizes.clock import Clock
from autotune.tuner.sizes.family import workload_at
from autotune.tuner.sizes.opening import Define, Opening, openings
from autotune.tuner.sizes.result import SizeRange, SizesResult
from autotune.tuner.task import Task
from autotune.tuner.task_tuning import TaskTuning
from autotune.tuner.tune_tasks import Need, TaskRequest, tune_tasks
from autotune.tuner.tuner import settings_for
from measure.database import Database
from measure.pool import MeasurePool
from search_space.schedule.errors import ScheduleError
from search_space.schedule.trace import Trace
from targets import registry

SEARCHES = 5
"""Default number of sizes at which schedules are searched."""


@dataclass(frozen=True)
class Plan:
    """Sizes, objective and effort of the tuning, by the names of `tune_for_sizes`.

    Attributes:
        weights: weight of each size, in the order of the sizes.
        search_at: sizes at which schedules are searched, in order.
        objective, schedules, finals, carried, size: arguments of `tune_for_sizes`.
    """

    weights: Mapping[int, float]
    search_at: Sequence[int]
    objective: Objective = "geomean"
    schedules: int = 8
    finals: int = 3
    carried: int = 16
    size: str = "n"

    @staticmethod
    def of(sizes: Mapping[int, float] | Sequence[int], search_at: Sequence[int] | None = None, **others: Any) -> Plan:
        """Makes a plan from arguments of `tune_for_sizes`, and checks it.

        Raises:
            ValueError: an argument is illegal, see `tune_for_sizes`.
        """
        weights = _weights(sizes)
        searched = _spread(list(weights)) if search_at is None else sorted(set(search_at))
        if not searched or not set(searched) <= weights.keys():
            raise ValueError(f"`search_at` must be some of the sizes {list(weights)}, but got {searched}")
        plan = Plan(weights, searched, **others)
        check_objective(plan.objective)
        for name, least in (("schedules", 1), ("finals", 1), ("carried", 0)):
            if (number := getattr(plan, name)) < least:
                raise ValueError(f"`{name}` must be at least {least}, but got {name}={number}")
        return plan


def tune_for_sizes(
    define: Define,
    sizes: Mapping[int, float] | Sequence[int],
    target: str = "cpu",
    trials: int = 64,
    seed: int = 0,
    *,
    objective: Objective = "geomean",
    schedules: int = 8,
    finals: int = 3,
    search_at: Sequence[int] | None = None,
    carried: int = 16,
    size: str = "n",
    records: str | os.PathLike[str] | None = None,
    callbacks: Sequence[Callback] = (),
    **options: Any,
) -> SizesResult:
    """Searches schedules for all sizes of a range, such that their times over a distribution are small.

    Args:
        define: definition by its size: inputs, in the order of the kernel's arguments, then the output; or an operator
            of the library with one argument open, a `Family`.
        sizes: sizes with their weights (a sequence: equal weights). The smallest and the largest are the ends of the
            range; kernels are chosen by their times at all of these.
        target: a name of `targets.registry`; one whose kernels take open sizes.
        trials: number of candidates to measure at each of the sizes at which schedules are searched.
        seed: seed of every random draw, and of the inputs.
        objective: `geomean`: the geometric mean of a size's time over that of the fastest schedule known for it, so
            that a size counts by its weight, however long a call takes. `mean`: the mean of seconds, which is the time
            of a mix of calls; large sizes dominate it.
        schedules: largest number of schedules; each is one kernel, with its own packed constants.
        finals: number of traces of each search that are timed at all sizes.
        search_at: sizes at which schedules are searched; None: up to five from the smallest to the largest, evenly by
            their logarithms.
        carried: number of candidates to measure at each of the other sizes, half of them like the fastest of its
            neighbours; 0: none.
        size: name of the size.
        records: file to append records to. Records of a size's workload in it are not measured again.
        callbacks: listeners of the run; Ctrl-C ends the search, and a second one the timing of the schedules found.
        options: `search`, `cost_model`, `measure` and `transfer` of `autotune.tune`.

    Returns:
        The result; after Ctrl-C from the measurements so far.

    Raises:
        ValueError: there are no sizes, a size, a weight or a number is not positive, or the objective is unknown.
        ScheduleError: no schedule found holds from the smallest size on.
        RunError: a kernel's outputs are wrong.
        KeyboardInterrupt: it was ended before there was a schedule for all sizes.
        NoLegalSchedule, AllTrialsFailed, RecordError, TransferError: errors of `autotune.tune`.
    """
    if trials < 1:
        raise ValueError(f"`trials` must be at least 1, but got trials={trials}")
    plan = Plan.of(
        sizes, search_at, objective=objective, schedules=schedules, finals=finals, carried=carried, size=size
    )
    settings = settings_for(registry.get(target), trials, seed, **options)
    pool = make_pool(settings.measure)
    with (
        nullcontext() if pool is settings.measure.pool else pool,
        nullcontext() if records is None else Database(records) as database,
    ):
        return tuned_together(define, plan, settings, pool, database, callbacks)


def tuned_together(
    define: Define,
    plan: Plan,
    settings: Settings,
    pool: MeasurePool,
    database: Database | None = None,
    callbacks: Sequence[Callback] = (),
    resume: bool = True,
) -> SizesResult:
    """Tunes for all sizes of a plan, like `tune_for_sizes`, with an open pool and database.

    Args:
        define: definition by its size.
        plan: sizes, objective and effort.
        settings: settings of the searches.
        pool: pool that measures their trials.
        database: database of the records; None: none are written.
        callbacks: listeners.
        resume: whether to reuse records of the database.

    Raises:
        See `tune_for_sizes`.
    """
    settings = settings.searching(finalists=0)  # the clock times the fastest again, at all sizes
    tuned = _run_searches(define, plan, settings, pool, database, callbacks, resume)
    return _choose_schedules(define, plan, tuned, settings, database, callbacks, resume)


def _run_searches(
    define: Define,
    plan: Plan,
    settings: Settings,
    pool: MeasurePool,
    database: Database | None,
    callbacks: Sequence[Callback],
    resume: bool,
) -> dict[int, TuneResult]:
    """Runs the searches by size: those at which schedules are searched, then those to which they are carried."""
    source, few = open_source(settings), _few(settings, plan.carried)
    others = [n for n in plan.weights if n not in plan.search_at and plan.carried]
    sizes, requests = [*plan.search_at, *others], []
    for n in sizes:
        workload, need = workload_at(define, n), Need.NOTHING if n in others else Need.RESULT
        task, how = Task(f"{plan.size}{n}", workload), few if n in others else settings
        requests.append(TaskRequest(task, how, algorithms=workload.algorithms[:1], need=need))

    def carry(tunings: Sequence[TaskTuning]) -> TaskScheduler:
        """Starts the searches of the other sizes from candidates of their neighbours."""
        by_size = dict(zip(sizes, tunings, strict=True))
        for n in others:
            rng = settings.generator(by_size[n].task.workload.key, "carry")
            first = partial(like_neighbours, by_size[n], n, by_size, math.ceil(plan.carried / 2), plan.finals, rng)
            by_size[n].strategy = CarryStrategy(by_size[n].strategy, first)
        return InOrder(len(plan.search_at))

    results = tune_tasks(requests, pool, database, resume=resume, source=source, schedule=carry, callbacks=callbacks)
    return dict(zip(sizes, results, strict=True))


def _choose_schedules(
    define: Define,
    plan: Plan,
    results: Mapping[int, TuneResult],
    settings: Settings,
    database: Database | None,
    callbacks: Sequence[Callback],
    resume: bool,
) -> SizesResult:
    """Opens the schedules found, times them, selects some, and assigns them to sizes."""
    sizes, size = list(plan.weights), plan.size
    low, high = sizes[0], sizes[-1]
    interrupted = any(result.interrupted for result in results.values())
    forms = _collect_openings(define, results, sizes, plan.finals, size)
    if forms and not any(opening.low <= low and high <= opening.high for opening in forms):
        raise ScheduleError(f"a schedule must hold for {size} from {low} to {high}, but none of {len(forms)} does")
    clock = Clock(define, {n: workload_at(define, n) for n in sizes}, settings, size, database, callbacks, resume)
    with Interrupt() as interrupt:
        timed = clock.time_all(forms, interrupt.poll)
        interrupted = interrupted or interrupt.requested
    everywhere = [t.opening.low <= low and high <= t.opening.high for t in timed]
    if not any(everywhere):
        if interrupted:
            raise KeyboardInterrupt
        raise ScheduleError(f"a kernel must hold for {size} from {low} to {high}, but none of {len(timed)} does")
    seconds = np.array([[t.seconds.get(n, math.inf) for n in sizes] for t in timed])  # (timed, sizes)
    best = dict(zip(sizes, seconds.min(axis=0).tolist(), strict=True))
    numbers = choose_schedules(everywhere, seconds, np.array([*plan.weights.values()]), plan.schedules, plan.objective)
    selected = [timed[number] for number in numbers]
    ranges = divide_sizes(sizes, selected)
    order = list(dict.fromkeys(number for _, _, number in ranges))
    schedules = tuple(selected[number].opening for number in order)
    parts = tuple(SizeRange(a, b, selected[number].opening.trace, order.index(number)) for a, b, number in ranges)
    times = dict(zip(sizes, seconds[numbers].min(axis=0).tolist(), strict=True))
    name, objective = settings.target.name, plan.objective
    return SizesResult(define, name, size, schedules, parts, plan.weights, times, best, results, objective, interrupted)


def _collect_openings(
    define: Define, results: Mapping[int, TuneResult], sizes: Sequence[int], finals: int, size: str
) -> list[Opening]:
    """Collects each form of each trace once, those that hold for all sizes first."""
    forms: dict[tuple[str, int, int], Opening] = {}
    for n, result in results.items():
        for record in finalists([*result.records, *result.others], finals):
            trace = Trace.from_json(record.trial.trace)
            for opening in openings(define, trace, n, sizes, size):
                forms.setdefault((opening.trace.key, opening.low, opening.high), opening)
    return sorted(forms.values(), key=lambda opening: (opening.low, -opening.high))


def _few(settings: Settings, trials: int) -> Settings:
    """Returns settings for carrying schedules to a size: two rounds, the second after the carried candidates."""
    batch = min(settings.search.batch, max(1, math.ceil(trials / 2)))
    return Settings(
        settings.target,
        trials,
        settings.seed,
        settings.search.model_copy(update={"batch": batch}),
        settings.cost_model,
        settings.measure,
    )


def _spread(sizes: Sequence[int], count: int = SEARCHES) -> list[int]:
    """Picks at most `count` of the sizes: the first, the last, and some between, evenly by their logarithms."""
    if len(sizes) <= count:
        return list(sizes)
    logs = np.log(sizes)
    marks = np.linspace(logs[0], logs[-1], count)
    return sorted({sizes[int(np.abs(logs - mark).argmin())] for mark in marks})


def _weights(sizes: Mapping[int, float] | Sequence[int]) -> dict[int, float]:
    """Checks sizes and weights, and returns them in the order of the sizes."""
    weights = dict(sizes) if isinstance(sizes, Mapping) else dict.fromkeys(sizes, 1.0)
    if not weights:
        raise ValueError("`sizes` must not be empty, but got none")
    for n, weight in weights.items():
        if not isinstance(n, (int, np.integer)) or n < 1:
            raise ValueError(f"`sizes` must be integers of at least 1, but got {n!r}")
        if not 0 < weight < math.inf:
            raise ValueError(f"a weight of `sizes` must be positive, but got {weight} for {n}")
    return {int(n): float(weights[n]) for n in sorted(weights)}
