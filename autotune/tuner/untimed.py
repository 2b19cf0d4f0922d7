"""Choice of a schedule without timing: of those of the best roofline estimates, the best by a pretrained model that
does not spill.
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
from autotune.tuner.search.population import Frame, Population, SeenCandidates
from autotune.tuner.search.sampling import LegalSampler
from autotune.tuner.settings import Settings
from autotune.tuner.task import Task
from costmodel.features import FeatureExtractor, Shared, get_extractor
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
"""Number of candidates that are estimated, of all algorithms together."""


INSPECTION_COUNT = 4
"""Number of candidates whose machine code is inspected in turn, as long as they spill."""


FEW_SPILLS = 0.02
"""Share of spilling instructions in a loop up to which they cost next to nothing."""


NEAR = 1.3
"""Ratio to the least estimate up to which the pretrained model decides: the roofline is no more accurate than that, and
further off the model has seen too little to know better."""


SPILL_COST = 3.0
"""Slowdown of a loop per share of spilling instructions: stores and loads wait for each other."""


@dataclass(frozen=True)
class _RankedCandidate:
    """Candidate of the sample of one algorithm.

    Attributes:
        seconds: estimate by the roofline.
        expected: value that orders candidates: seconds by the model, up to a factor that all of a task share; by the
            roofline without a model. Both on a machine that does other things as well.
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
    """Candidates of one algorithm, drawn at random, with their estimates.

    Attributes:
        seconds: estimates by the roofline, (candidates,).
        expected: values as in `_RankedCandidate`, (candidates,).
        proposed: whether a database proposes the candidate, (candidates,); such are never too far from the best.
    """

    space: SearchSpace
    frame: Frame
    pool: Population
    seconds: NDArray[np.float64]
    expected: NDArray[np.float64]
    proposed: NDArray[np.bool_]

    def best(self, limit: float) -> list[_RankedCandidate]:
        """Picks a few of the best expected, of several sketches, among those estimated within a limit of seconds."""
        near = np.flatnonzero((self.seconds <= limit) | self.proposed)
        pool, expected = self.pool.take(near), self.expected[near]
        each = max(1, INSPECTION_COUNT // 4, math.ceil(INSPECTION_COUNT / max(1, len(np.unique(pool.sketches)))))
        picked = pick_diverse(pool, -expected, INSPECTION_COUNT, GuidedOptions.diversity, each)
        chosen = zip(self.frame.candidates(pool.take(picked)), near[picked].tolist(), strict=True)
        return [
            _RankedCandidate(float(self.seconds[at]), float(self.expected[at]), one, self.space) for one, at in chosen
        ]


def select_without_trials(
    task: Task,
    settings: Settings,
    algorithms: Sequence[str] | None = None,
    space: SearchSpace | None = None,
    hardware: Hardware | None = None,
    **options: Any,
) -> ScheduledWorkload:
    """Chooses the schedule of a task that is not searched: `select_by_model` by the settings' pretrained model and
    database, if the space is the workload's own.

    Raises:
        ConfigError: no candidate is legal, or the settings name a model or database that does not exist.
    """
    target = settings.of(task).target
    model = None if space is not None else open_pretrained(settings.cost_model.pretrained, target.name)
    like: Sequence[Entry] = ()
    if model is not None:
        store = EntryStore(settings, hardware=hardware)
        like = store.nearest(task.workload, target, settings.search.starts)
    return select_by_model(task, settings, algorithms, space, hardware, model=model, like=like, **options)


def select_by_roofline(
    task: Task, settings: Settings, algorithms: Sequence[str] | None = None, **options: Any
) -> ScheduledWorkload:
    """Chooses a schedule by the estimate alone: `select_by_model` without a model, with the same arguments."""
    return select_by_model(task, settings, algorithms, **options)


def select_by_model(
    task: Task,
    settings: Settings,
    algorithms: Sequence[str] | None = None,
    space: SearchSpace | None = None,
    hardware: Hardware | None = None,
    kernel_name: Callable[[str, Trace], str | None] = lambda algorithm, trace: None,
    model: CostModel | None = None,
    like: Sequence[Entry] = (),
) -> ScheduledWorkload:
    """Chooses the best of a sample of generated code: by the roofline, or by a model among those near the roofline's
    best.

    It inspects the few best expected in turn, and returns the first whose machine code keeps its vectors in registers.
    If all spill, it returns the one of the least expected time, spilling included.

    Each algorithm is sampled with its own random numbers, that of the least `least_seconds` first. One whose estimates
    cannot come near that of the candidate chosen already is skipped: it would change nothing.

    Args:
        task: task to compute.
        settings: settings with the target and the seed.
        algorithms: algorithms to choose from; by default all except a library's and those of unusual error.
        space: space to choose from in place of the workload's own, such as that of a template.
        hardware: machine for the estimate; by default that of the target.
        kernel_name: function algorithm and trace → name of the kernel if its module is wanted, else None.
        model: model of the logarithm of throughput; None: the roofline decides.
        like: schedules of similar workloads, which join the sample if they can be projected.

    Raises:
        ConfigError: no candidate is legal.
    """
    workload, settings = task.workload, settings.of(task)
    machine, cold = hardware or settings.target.hardware, settings.measure.cache == "network"
    usual = within(workload.algorithms)
    own = [algorithm for algorithm in usual if algorithm != LIBRARY]  # a library's has no loops to estimate
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
        """Returns the estimate up to which the model decides."""
        return trust * min((float(of.seconds.min()) for of in samples), default=math.inf)

    built: dict[_RankedCandidate, Module] = {}

    @cache
    def spill_share(one: _RankedCandidate) -> float | None:
        name = kernel_name(one.sketch.algorithm, one.trace)
        share, module = _compute_spills(one, settings.target, name)
        if module is not None and name is not None:
            built[one] = module
        return share

    # A skipped algorithm has no candidate that is estimated near enough, so none that would be inspected first.
    while waiting and least[waiting[0]] < near():
        sample(waiting[0])
    while True:
        if not samples:
            raise ConfigError(str(failures[0]))
        limit = math.inf if model is None else near()  # the few best by the roofline may all spill
        ranked = sorted((one for of in samples for one in of.best(limit)), key=lambda one: one.expected)
        first, seconds = _least_spilling(ranked, spill_share)
        if not waiting or least[waiting[0]] >= seconds * trust:
            break
        sample(waiting[0])  # all inspected candidates spill
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
    proposals: Sequence[Candidate],
) -> _Sample:
    """Draws about `count` candidates of a space, equally many of every sketch, and adds the known ones.

    Raises:
        NoLegalSchedule: the space has no legal candidate.
    """
    shared: Shared = {}

    def extractor(sketch: int) -> FeatureExtractor:
        of = space.sketches[sketch]
        return get_extractor(of.program, of.columns, space.hardware, cold, threads, shared)

    def estimate(sketch: int, choices: NDArray[np.int32]) -> NDArray[np.float64]:
        return np.asarray(extractor(sketch).roofline(space.sketches[sketch].expand(choices)))

    def throughput(sketch: int, choices: NDArray[np.int32]) -> NDArray[np.float64]:
        assert model is not None
        return model.predict(extractor(sketch)(space.sketches[sketch].expand(choices)))

    def disturbance(sketch: int, choices: NDArray[np.int32]) -> NDArray[np.float64]:
        return extractor(sketch).disturbance(space.sketches[sketch].expand(choices))

    frame, seen = Frame(space), SeenCandidates()
    named = frame.population(proposals)
    seen.add(frame.keys(named))
    sampler = LegalSampler(frame, seen, rng)
    drawn = sampler.spread(np.full(len(frame.sketches), max(LEAST, count // max(1, len(frame.sketches)))))
    sampler.check()
    pool = Population.concatenate([drawn, named])
    seconds, proposed = frame.score(pool, estimate), np.arange(len(pool)) >= len(drawn)
    if model is None:
        return _Sample(space, frame, pool, seconds, seconds * frame.score(pool, disturbance), proposed)
    near = np.flatnonzero((seconds <= NEAR * seconds.min()) | proposed)  # others cannot be chosen
    pool = pool.take(near)
    expected = np.exp2(-frame.score(pool, throughput)) * frame.score(pool, disturbance)
    return _Sample(space, frame, pool, seconds[near], expected, proposed[near])


def _compute_spills(one: _RankedCandidate, target: Target, name: str | None) -> tuple[float | None, Module | None]:
    """Returns the share of a candidate's loop instructions that spill, and its module; None if it cannot be built."""
    try:
        return target.spills(one.space.program(one.candidate), name or "kernel")
    except (BuildError, ScheduleError):
        return None, None  # building the chosen schedule reports the error


def _least_spilling(
    ranking: Sequence[_RankedCandidate], spill_share: Callable[[_RankedCandidate], float | None]
) -> tuple[_RankedCandidate, float]:
    """Returns the first candidate in the expected order that does not spill, and its estimate with spilling.

    If all of the first few spill, others are inspected as long as they are expected to take less than these.
    """
    spilling: list[tuple[float, int, float]] = []
    for position, one in enumerate(ranking):
        if position >= INSPECTION_COUNT and spilling and one.expected >= min(spilling)[0]:
            break
        share = spill_share(one)
        if share is None:
            continue
        if share <= FEW_SPILLS:
            return one, one.seconds
        longer = 1 + SPILL_COST * share
        spilling.append((one.expected * longer, position, one.seconds * longer))
    _, position, seconds = min(spilling, default=(math.inf, 0, ranking[0].seconds))
    return ranking[position], seconds
