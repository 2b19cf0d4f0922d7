"""The schedule that is chosen where nothing has been timed: of those that the roofline thinks best, the one that a
pretrained model does, if it does not spill.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.config import ConfigError
from autotune.schedule import Schedule
from autotune.schedule_store import ScheduledWorkload
from autotune.tuner.database.entry import Entry
from autotune.tuner.database.projection import project
from autotune.tuner.entry_store import EntryStore
from autotune.tuner.search.base import Candidate, NoLegalSchedule
from autotune.tuner.search.guided import LEAST, GuidedOptions
from autotune.tuner.search.moves import pick_diverse
from autotune.tuner.search.population import Frame, Population, Seen
from autotune.tuner.search.sampling import LegalSampler
from autotune.tuner.settings import Settings
from autotune.tuner.task import Task
from costmodel.features import FeatureExtractor, Shared, extractor_of
from costmodel.features.estimators.least import least_seconds
from costmodel.models.base import CostModel
from costmodel.pretrained import open_pretrained
from search_space.hardware import Hardware
from search_space.operators.algorithms import within
from search_space.operators.base import LIBRARY
from search_space.schedule.errors import ScheduleError
from search_space.schedule.trace import Trace
from search_space.space import SearchSpace, Sketch, generate
from targets.base import BuildError, Module, Target

SAMPLE = 2048
"""Candidates that are estimated, of all algorithms together."""


INSPECTED = 4
"""Candidates whose machine code is looked at, where the one before spills."""


FEW_SPILLS = 0.02
"""Share of spilling instructions in a loop that cost nothing to speak of."""


NEAR = 1.3
"""Estimates within so many times the least are told apart by the pretrained model: the roofline is no better than that,
and further off the model has seen little that it could know better."""


SPILL_COST = 3.0
"""How much longer a loop takes, by its share of spilling instructions: stores and loads wait for each other."""


@dataclass(frozen=True)
class _Ranked:
    """A candidate of the sample of one algorithm.

    Attributes:
        seconds: that the roofline says of it.
        expected: what candidates are ordered by: its seconds by the model, up to a factor that all of a task have; by
            the roofline where there is no model.
    """

    seconds: float
    expected: float
    candidate: Candidate
    space: SearchSpace

    @property
    def sketch(self) -> Sketch:
        return self.space.sketches[self.candidate.sketch]

    @cached_property
    def trace(self) -> Trace:
        return self.sketch.trace(np.array(self.candidate.choices, np.int32))


@dataclass(frozen=True)
class _Sample:
    """Candidates of one algorithm, drawn at random, and what is thought of each.

    Attributes:
        seconds: by the roofline, (candidates,).
        expected: see `_Ranked`, (candidates,).
        known: whether it is one that a database proposes, (candidates,); such are never too far from the best.
    """

    space: SearchSpace
    frame: Frame
    pool: Population
    seconds: NDArray[np.float64]
    expected: NDArray[np.float64]
    known: NDArray[np.bool_]

    def best(self, limit: float) -> list[_Ranked]:
        """A few that are expected to be best, of several sketches, of those estimated within a limit of seconds."""
        near = np.flatnonzero((self.seconds <= limit) | self.known)
        pool, expected = self.pool.take(near), self.expected[near]
        each = max(1, INSPECTED // 4, math.ceil(INSPECTED / max(1, len(np.unique(pool.sketches)))))
        picked = pick_diverse(pool, -expected, INSPECTED, GuidedOptions.diversity, each)
        chosen = zip(self.frame.candidates(pool.take(picked)), near[picked].tolist(), strict=True)
        return [_Ranked(float(self.seconds[at]), float(self.expected[at]), one, self.space) for one, at in chosen]


def without_trials(
    task: Task,
    settings: Settings,
    algorithms: Sequence[str] | None = None,
    space: SearchSpace | None = None,
    hardware: Hardware | None = None,
    **options: Any,
) -> ScheduledWorkload:
    """The schedule of a task that is not searched: `chosen` by the settings' pretrained model and database, if it is of
    the workload's own space.

    Raises:
        ConfigError: no candidate is legal, or the settings name what there is not.
    """
    target = settings.of(task).target
    model = None if space is not None else open_pretrained(settings.cost_model.pretrained, target.name)
    like: Sequence[Entry] = ()
    if model is not None:
        store = EntryStore(settings, hardware=hardware)
        like = store.nearest(task.workload, target, settings.search.starts)
    return chosen(task, settings, algorithms, space, hardware, model=model, like=like, **options)


def by_roofline(
    task: Task, settings: Settings, algorithms: Sequence[str] | None = None, **options: Any
) -> ScheduledWorkload:
    """What is chosen by the estimate alone: `chosen` without a model, with the same arguments."""
    return chosen(task, settings, algorithms, **options)


def chosen(
    task: Task,
    settings: Settings,
    algorithms: Sequence[str] | None = None,
    space: SearchSpace | None = None,
    hardware: Hardware | None = None,
    named: Callable[[str, Trace], str | None] = lambda algorithm, trace: None,
    model: CostModel | None = None,
    like: Sequence[Entry] = (),
) -> ScheduledWorkload:
    """The best of a sample of generated code: by the roofline, or by a model of those that it puts near its best.

    Of the few that are expected to be best it is the first whose machine code keeps its vectors in registers; where
    none does, the one that is expected to take least, spilling counted in.

    Each algorithm is sampled with random numbers of its own, that of the least `least_seconds` first. One whose
    estimates cannot come near to that of what is chosen already is passed over: it would change nothing.

    Args:
        task: what to compute.
        settings: for which target, and the seed.
        algorithms: to choose from; all that are no library's and of no unusual error by default.
        space: to choose from in place of the workload's own, such as that of a template.
        hardware: what the estimate knows of the machine; by default what the target says.
        named: algorithm and trace → name of the kernel that is wanted; None: it is not wanted.
        model: predicts the logarithm of throughput; None: the roofline decides.
        like: schedules of like workloads, which join the sample where they can be carried over.

    Raises:
        ConfigError: no candidate is legal.
    """
    workload, settings = task.workload, settings.of(task)
    machine, cold = hardware or settings.target.hardware, settings.measure.cache == "network"
    usual = within(workload.algorithms)
    own = [algorithm for algorithm in usual if algorithm != LIBRARY]  # there are loops to see
    shown = list(own if algorithms is None else algorithms) if space is None else [""]
    least = {
        name: least_seconds(workload.tensors(name), machine.on(settings.threads), cold) if name else 0.0
        for name in shown
    }
    waiting = sorted(shown, key=lambda name: least[name])
    trust = 1.0 if model is None else NEAR
    samples: list[_Sample] = []
    failures: list[NoLegalSchedule] = []

    def sample(name: str) -> None:
        waiting.remove(name)
        rng = settings.generator(workload.key, f"lower {name}")
        try:
            of = generate(workload, machine, [name]) if space is None else space
            known = [found for entry in like if (found := project(entry, of)) is not None]
            samples.append(
                _sample(of, cold, rng, SAMPLE // len(shown), settings.threads, model, list(dict.fromkeys(known)))
            )
        except NoLegalSchedule as error:
            failures.append(error)

    def near() -> float:
        """Estimates up to which a model has a say."""
        return trust * min((float(of.seconds.min()) for of in samples), default=math.inf)

    built: dict[_Ranked, Module] = {}

    @cache
    def spilled(one: _Ranked) -> float | None:
        name = named(one.sketch.algorithm, one.trace)
        share, module = _spilled(one, settings.target, name)
        if module is not None and name is not None:
            built[one] = module
        return share

    # What is passed over has no candidate that is estimated near enough, so none that would be looked at first.
    while waiting and least[waiting[0]] < near():
        sample(waiting[0])
    while True:
        if not samples:
            raise ConfigError(str(failures[0]))
        limit = math.inf if model is None else near()  # the roofline's own few may all spill
        ranked = sorted((one for of in samples for one in of.best(limit)), key=lambda one: one.expected)
        first, seconds = _least_spilling(ranked, spilled)
        if not waiting or least[waiting[0]] >= seconds * trust:
            break
        sample(waiting[0])  # all that were looked at spill
    sketch = first.sketch
    return ScheduledWorkload(
        workload,
        settings.target,
        Schedule(sketch.algorithm, first.trace),
        first.seconds,
        provisional=True,
        sketch=sketch.name,
        choices=first.candidate.choices,
        module=built.get(first),
    )


def _sample(
    space: SearchSpace,
    cold: bool,
    rng: np.random.Generator,
    count: int,
    threads: int,
    model: CostModel | None,
    known: Sequence[Candidate],
) -> _Sample:
    """About `count` candidates of a space, of every sketch as many, and those that are known.

    Raises:
        NoLegalSchedule: there is none.
    """
    shared: Shared = {}

    def extractor(sketch: int) -> FeatureExtractor:
        of = space.sketches[sketch]
        return extractor_of(of.program, of.columns, space.hardware, cold, threads, shared)

    def estimated(sketch: int, choices: NDArray[np.int32]) -> NDArray[np.float64]:
        return np.asarray(extractor(sketch).roofline(space.sketches[sketch].expand(choices)))

    def throughput(sketch: int, choices: NDArray[np.int32]) -> NDArray[np.float64]:
        assert model is not None
        return model.predict(extractor(sketch)(space.sketches[sketch].expand(choices)))

    frame, seen = Frame(space), Seen()
    named = frame.population(known)
    seen.add(frame.keys(named))
    sampler = LegalSampler(frame, seen, rng)
    drawn = sampler.spread(np.full(len(frame.sketches), max(LEAST, count // max(1, len(frame.sketches)))))
    sampler.check()
    pool = Population.concatenate([drawn, named])
    seconds, proposed = frame.score(pool, estimated), np.arange(len(pool)) >= len(drawn)
    if model is None:
        return _Sample(space, frame, pool, seconds, seconds, proposed)
    near = np.flatnonzero((seconds <= NEAR * seconds.min()) | proposed)  # of others nobody will ask
    pool = pool.take(near)
    return _Sample(space, frame, pool, seconds[near], np.exp2(-frame.score(pool, throughput)), proposed[near])


def _spilled(one: _Ranked, target: Target, name: str | None) -> tuple[float | None, Module | None]:
    """Share of the instructions of a candidate's loops that spill, and what was built; None where nothing can be."""
    try:
        return target.spills(one.space.program(one.candidate), name or "kernel")
    except (BuildError, ScheduleError):
        return None, None  # whoever builds what is chosen reports it


def _least_spilling(ranked: Sequence[_Ranked], spilled: Callable[[_Ranked], float | None]) -> tuple[_Ranked, float]:
    """The best of candidates, in the order in which they are expected, and its estimate, spilling counted in.

    Where all of the first few spill, others are looked at as long as they are expected to take less than that.
    """
    found: list[tuple[float, int, float]] = []
    for place, one in enumerate(ranked):
        if place >= INSPECTED and found and one.expected >= min(found)[0]:
            break
        share = spilled(one)
        if share is None:
            continue
        if share <= FEW_SPILLS:
            return one, one.seconds
        longer = 1 + SPILL_COST * share
        found.append((one.expected * longer, place, one.seconds * longer))
    _, place, seconds = min(found, default=(math.inf, 0, ranked[0].seconds))
    return ranked[place], seconds
