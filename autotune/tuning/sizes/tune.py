"""Tuning for a distribution of one size: search at some sizes, fit to the others, time all at all, keep a few.

1. At a few sizes schedules are searched as `autotune.tune` does.
2. At the others, candidates that are like the fastest of their neighbours, with factors fitted, are the beginning of a
   search with few trials (`carry`).
3. What was found is opened: a trace holds from some size on, with the tails that this needs (`opening`).
4. Each is timed at every size that it holds for, by the kernel that will run (`clock`).
5. Those few are kept that together make the objective small (`choice`), and each has the sizes where it is the fastest.

DietCode (Zheng et al., MLSys 2022) searches micro-kernels that serve a distribution of shapes together; here the
sketches and the search are those of known sizes.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from autotune.tuning.callbacks import Callback
from autotune.tuning.finals import finalists
from autotune.tuning.interrupt import Interrupt
from autotune.tuning.loop import run_rounds
from autotune.tuning.pools import make_pool
from autotune.tuning.result import AllTrialsFailed, TuneResult
from autotune.tuning.settings import Settings
from autotune.tuning.sizes.carry import Carried, InOrder, like_neighbours
from autotune.tuning.sizes.choice import Objective, check_objective, chosen, ranges
from autotune.tuning.sizes.clock import Clock
from autotune.tuning.sizes.family import workload_at
from autotune.tuning.sizes.opening import Define, Opening, openings
from autotune.tuning.sizes.result import Part, SizesResult
from autotune.tuning.task import Task
from autotune.tuning.task_tuning import TaskTuning
from autotune.tuning.tuner import known, prepare, settings_for, source_of
from measure.database import Database
from search_space.schedule.errors import ScheduleError
from search_space.schedule.trace import Trace
from targets import registry

SEARCHES = 5
"""Sizes at which schedules are searched where nothing is said."""


class _Numbers(NamedTuple):
    """How much is done, by the names of `tune_for_sizes`."""

    objective: str
    schedules: int
    finals: int
    carried: int


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
        define: the definition, by its size: inputs, in the order in which kernels take them, then the output.
        sizes: with how often each comes (equally often: a sequence). The smallest and the largest are the ends of the
            range; kernels are chosen by their times at all of these.
        target: a name of `targets.registry`; one whose kernels take open sizes.
        trials: candidates to measure, for each of the sizes at which schedules are searched.
        seed: of every random draw, and of the inputs.
        objective: `geomean`: the geometric mean of a size's time over that of the fastest schedule known for it, so
            that a size counts as its weight says, however long a call takes. `mean`: the mean of seconds, which is
            what a mix of calls takes together; large sizes decide it.
        schedules: how many there are to be at most; each is one kernel, with constants packed for itself.
        finals: traces of each search that are timed at all sizes.
        search_at: those of the sizes at which schedules are searched; None: up to five from the smallest to the
            largest, evenly by their logarithms.
        carried: candidates to measure at each of the other sizes, half of them like the fastest of its neighbours;
            0: none.
        size: name of the size.
        records: file to append records to. What it holds of a size's workload is not measured again.
        callbacks: listeners of the run; Ctrl-C ends the search, and once more the timing of what was found.
        options: `search`, `cost_model`, `measure` and `transfer` of `autotune.tune`.

    Returns:
        The result; after Ctrl-C of what was measured by then.

    Raises:
        ValueError: no sizes, or a size, a weight or a number that is not positive, or an unknown objective.
        ScheduleError: no schedule that was found holds from the smallest size on.
        RunError: a kernel computes something else than the definition.
        KeyboardInterrupt: it was ended before there was a schedule for all sizes.
        NoLegalSchedule, AllTrialsFailed, RecordError, TransferError: as of `autotune.tune`.
    """
    weights = _weights(sizes)
    check_objective(objective)
    for name, number, least in (("schedules", schedules, 1), ("finals", finals, 1), ("carried", carried, 0)):
        if number < least:
            raise ValueError(f"`{name}` must be at least {least}, but got {name}={number}")
    if trials < 1:
        raise ValueError(f"`trials` must be at least 1, but got trials={trials}")
    searched = _spread(list(weights)) if search_at is None else sorted(set(search_at))
    if not searched or not set(searched) <= weights.keys():
        raise ValueError(f"`search_at` must be some of the sizes {list(weights)}, but got {searched}")
    settings = settings_for(registry.get(target), trials, seed, **options).searching(finalists=0)
    numbers = _Numbers(objective, schedules, finals, carried)
    with nullcontext() if records is None else Database(records) as database:
        tuned = _searched(define, [*weights], searched, settings, numbers, size, database, callbacks)
        return _kept(define, weights, tuned, settings, numbers, size, database, callbacks)


def _searched(
    define: Define,
    sizes: Sequence[int],
    searched: Sequence[int],
    settings: Settings,
    numbers: _Numbers,
    size: str,
    database: Database | None,
    callbacks: Sequence[Callback],
) -> dict[int, TuneResult]:
    """The searches, by size: those at which schedules are searched, then those to which they are carried."""
    source, few = source_of(settings), _few(settings, numbers.carried)
    others = [n for n in sizes if n not in searched and numbers.carried]
    tunings: dict[int, TaskTuning] = {}
    for n in [*searched, *others]:
        workload = workload_at(define, n)
        how = settings if n in searched else few
        task = Task(f"{size}{n}", workload)
        tuning = prepare(task, how, known(database, workload, how), algorithms=workload.algorithms[:1], source=source)
        if tuning.failure is not None and n in searched:
            raise tuning.failure
        tunings[n] = tuning
    for n in others:
        rng = settings.generator(tunings[n].task.workload.key, "carry")
        count = math.ceil(numbers.carried / 2)
        first = partial(like_neighbours, tunings[n], n, tunings, count, numbers.finals, rng)
        tunings[n].strategy = Carried(tunings[n].strategy, first)
    pool = make_pool(settings.measure)
    with nullcontext() if pool is settings.measure.pool else pool:
        results = run_rounds([*tunings.values()], pool, database, callbacks, InOrder(len(searched)))
    found = dict(zip(tunings, results, strict=True))
    for n in searched:
        if (failure := tunings[n].failure) is not None:
            raise failure
        if found[n].problem:
            raise AllTrialsFailed(found[n])
    return found


def _kept(
    define: Define,
    weights: Mapping[int, float],
    tuned: Mapping[int, TuneResult],
    settings: Settings,
    numbers: _Numbers,
    size: str,
    database: Database | None,
    callbacks: Sequence[Callback],
) -> SizesResult:
    """What was found, opened, timed, chosen, and given to sizes."""
    sizes = list(weights)
    low, high = sizes[0], sizes[-1]
    interrupted = any(result.interrupted for result in tuned.values())
    found = _opened(define, tuned, sizes, numbers.finals, size)
    if found and not any(opening.low <= low and high <= opening.high for opening in found):
        raise ScheduleError(f"a schedule must hold for {size} from {low} to {high}, but none of {len(found)} does")
    clock = Clock(define, {n: workload_at(define, n) for n in sizes}, settings, size, database, callbacks)
    with Interrupt() as interrupt:
        timed = clock.time_all(found, interrupt.pressed)
        interrupted = interrupted or interrupt.requested
    everywhere = [t.opening.low <= low and high <= t.opening.high for t in timed]
    if not any(everywhere):
        if interrupted:
            raise KeyboardInterrupt
        raise ScheduleError(f"a kernel must hold for {size} from {low} to {high}, but none of {len(timed)} does")
    seconds = np.array([[t.seconds.get(n, math.inf) for n in sizes] for t in timed])  # (timed, sizes)
    best = dict(zip(sizes, seconds.min(axis=0).tolist(), strict=True))
    taken = chosen(everywhere, seconds, np.array([*weights.values()]), numbers.schedules, numbers.objective)
    kept = [timed[place] for place in taken]
    found_ranges = ranges(low, high, sizes, kept)
    order = list(dict.fromkeys(place for _, _, place in found_ranges))
    schedules = tuple(kept[place].opening for place in order)
    parts = tuple(Part(a, b, kept[place].opening.trace, order.index(place)) for a, b, place in found_ranges)
    times = dict(zip(sizes, seconds[taken].min(axis=0).tolist(), strict=True))
    name, objective = settings.target.name, numbers.objective
    return SizesResult(define, name, size, schedules, parts, weights, times, best, tuned, objective, interrupted)


def _opened(
    define: Define, tuned: Mapping[int, TuneResult], sizes: Sequence[int], finals: int, size: str
) -> list[Opening]:
    """Each form of each trace once, those that hold for all sizes first."""
    found: dict[tuple[str, int, int], Opening] = {}
    for n, result in tuned.items():
        for record in finalists([*result.records, *result.others], finals):
            trace = Trace.from_json(record.trial.trace)
            for opening in openings(define, trace, n, sizes, size):
                found.setdefault((opening.trace.key, opening.low, opening.high), opening)
    return sorted(found.values(), key=lambda opening: (opening.low, -opening.high))


def _few(settings: Settings, trials: int) -> Settings:
    """How schedules are carried to a size: in two rounds, so that a search goes on from what was carried."""
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
    """At most `count` of the sizes: the first, the last, and some between, evenly by their logarithms."""
    if len(sizes) <= count:
        return list(sizes)
    logs = np.log(sizes)
    marks = np.linspace(logs[0], logs[-1], count)
    return sorted({sizes[int(np.abs(logs - mark).argmin())] for mark in marks})


def _weights(sizes: Mapping[int, float] | Sequence[int]) -> dict[int, float]:
    """In the order of the sizes."""
    given = dict(sizes) if isinstance(sizes, Mapping) else dict.fromkeys(sizes, 1.0)
    if not given:
        raise ValueError("`sizes` must not be empty, but got none")
    for n, weight in given.items():
        if not isinstance(n, (int, np.integer)) or n < 1:
            raise ValueError(f"`sizes` must be integers of at least 1, but got {n!r}")
        if not 0 < weight < math.inf:
            raise ValueError(f"a weight of `sizes` must be positive, but got {weight} for {n}")
    return {int(n): float(given[n]) for n in sorted(given)}
