"""The schedule that is chosen where nothing has been timed: the best by the roofline of those that do not spill."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

import numpy as np

from autotune import search
from autotune.config import ConfigError
from autotune.search.base import Candidate, NoLegalSchedule
from autotune.tuning.settings import Settings
from autotune.tuning.task import Task
from costmodel.features import FeatureExtractor
from costmodel.features.estimators.least import least_seconds
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


SPILL_COST = 3.0
"""How much longer a loop takes, by its share of spilling instructions: stores and loads wait for each other."""


@dataclass(frozen=True)
class Scheduled:
    """A workload with a concrete schedule.

    Attributes:
        seconds: that the roofline says of it, where it was asked.
        module: its kernel, where it was built to be looked at, under the name that was asked for.
    """

    task: Task
    algorithm: str
    trace: Trace
    seconds: float = math.nan
    module: Module | None = field(default=None, compare=False)


@dataclass(frozen=True)
class _Ranked:
    """A candidate of the sample of one algorithm, by its estimated seconds."""

    seconds: float
    candidate: Candidate
    space: SearchSpace

    @property
    def sketch(self) -> Sketch:
        return self.space.sketches[self.candidate.sketch]

    @cached_property
    def trace(self) -> Trace:
        return self.sketch.trace(np.array(self.candidate.choices, np.int32))


def by_roofline(
    task: Task,
    settings: Settings,
    algorithms: Sequence[str] | None = None,
    space: SearchSpace | None = None,
    hardware: Hardware | None = None,
    named: Callable[[str, Trace], str | None] = lambda algorithm, trace: None,
) -> Scheduled:
    """The schedule that a search would begin with: the best of a sample of generated code by the roofline.

    Of the few that are estimated best it is the first whose machine code keeps its vectors in registers; where none
    does, the one with the least estimate, spilling counted in.

    Each algorithm is sampled with random numbers of its own, that of the least `least_seconds` first. One whose
    estimates cannot be less than that of what is chosen already is passed over: it would change nothing.

    Args:
        task: what to compute.
        settings: for which target, and the seed.
        algorithms: to choose from; all that are no library's and of no unusual error by default.
        space: to choose from in place of the workload's own, such as that of a template.
        hardware: what the estimate knows of the machine; by default what the target says.
        named: algorithm and trace → name of the kernel that is wanted; None: it is not wanted.

    Raises:
        ConfigError: no candidate is legal.
    """
    workload, settings = task.workload, settings.of(task)
    machine, cold = hardware or settings.target.hardware, settings.measure.cache == "network"
    usual = within(workload.algorithms)
    own = [algorithm for algorithm in usual if algorithm != LIBRARY]  # there are loops to see
    shown = list(own if algorithms is None else algorithms) if space is None else [""]
    least = {name: least_seconds(workload.tensors(name), machine, cold) if name else 0.0 for name in shown}
    waiting = sorted(shown, key=lambda name: least[name])
    ranked: list[_Ranked] = []
    failures: list[NoLegalSchedule] = []

    def sampled(name: str) -> None:
        waiting.remove(name)
        rng = settings.generator(workload.key, f"lower {name}")
        try:
            of = generate(workload, machine, [name]) if space is None else space
            ranked.extend(_sample(of, cold, rng, SAMPLE // len(shown)))
        except NoLegalSchedule as error:
            failures.append(error)
        ranked.sort(key=lambda one: one.seconds)

    built: dict[_Ranked, Module] = {}

    @cache
    def spilled(one: _Ranked) -> float | None:
        name = named(one.sketch.algorithm, one.trace)
        share, module = _spilled(one, settings.target, name)
        if module is not None and name is not None:
            built[one] = module
        return share

    # What is passed over has no candidate that is estimated better, so none that would be looked at first.
    while waiting and (not ranked or least[waiting[0]] < ranked[0].seconds):
        sampled(waiting[0])
    while True:
        if not ranked:
            raise ConfigError(str(failures[0]))
        chosen, seconds = _least_spilling(ranked, spilled)
        if not waiting or least[waiting[0]] >= seconds:
            break
        sampled(waiting[0])  # all that were looked at spill
    return Scheduled(task, chosen.sketch.algorithm, chosen.trace, chosen.seconds, built.get(chosen))


def _sample(space: SearchSpace, cold: bool, rng: np.random.Generator, count: int) -> list[_Ranked]:
    """The best of about `count` candidates of a space by their estimates, of several sketches.

    Raises:
        NoLegalSchedule: there is none.
    """

    @cache
    def extractor(sketch: int) -> FeatureExtractor:
        of = space.sketches[sketch]
        return FeatureExtractor(of.program, of.columns, space.hardware, cold)

    def score(sketch: int, choices: Any) -> Any:
        return -extractor(sketch).roofline(space.sketches[sketch].expand(choices))

    best = search.get("evolution")(space, score, rng, first_epsilon=0.0, first_sample=count).ask(INSPECTED)
    seconds = (float(-score(one.sketch, np.array([one.choices], np.int32))[0]) for one in best)
    return [_Ranked(estimated, one, space) for one, estimated in zip(best, seconds, strict=True)]


def _spilled(one: _Ranked, target: Target, name: str | None) -> tuple[float | None, Module | None]:
    """Share of the instructions of a candidate's loops that spill, and what was built; None where nothing can be."""
    try:
        return target.spills(one.space.program(one.candidate), name or "kernel")
    except (BuildError, ScheduleError):
        return None, None  # whoever builds what is chosen reports it


def _least_spilling(ranked: Sequence[_Ranked], spilled: Callable[[_Ranked], float | None]) -> tuple[_Ranked, float]:
    """The best of candidates, in the order of their estimates, and its seconds, spilling counted in.

    Where all of the first few spill, others are looked at as long as their estimates are below that.
    """
    found: list[tuple[float, int]] = []
    for place, one in enumerate(ranked):
        if place >= INSPECTED and found and one.seconds >= min(found)[0]:
            break
        share = spilled(one)
        if share is None:
            continue
        if share <= FEW_SPILLS:
            return one, one.seconds
        found.append((one.seconds * (1 + SPILL_COST * share), place))
    seconds, place = min(found, default=(ranked[0].seconds, 0))
    return ranked[place], seconds
