"""The schedule that is chosen where nothing has been timed: the best by the roofline of those that do not spill."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from autotune import search
from autotune.config import ConfigError
from autotune.search.base import Candidate, NoLegalSchedule
from autotune.tuning.settings import Settings
from autotune.tuning.task import Task
from costmodel.features import FeatureExtractor
from search_space.hardware import Hardware
from search_space.operators import winograd
from search_space.operators.base import LIBRARY
from search_space.schedule.errors import ScheduleError
from search_space.schedule.trace import Trace
from search_space.space import SearchSpace, generate
from targets.base import BuildError, Target

INSPECTED = 4
"""Candidates whose machine code is looked at, where the one before spills."""


FEW_SPILLS = 0.02
"""Share of spilling instructions in a loop that cost nothing to speak of."""


SPILL_COST = 3.0
"""How much longer a loop takes, by its share of spilling instructions: stores and loads wait for each other."""


@dataclass(frozen=True)
class Scheduled:
    """A workload with a concrete schedule, and the seconds that the roofline says of it, where it was asked."""

    task: Task
    algorithm: str
    trace: Trace
    seconds: float = math.nan


def by_roofline(
    task: Task,
    settings: Settings,
    algorithms: Sequence[str] | None = None,
    space: SearchSpace | None = None,
    hardware: Hardware | None = None,
) -> Scheduled:
    """The schedule that a search would begin with: the best of a sample of generated code by the roofline.

    Of the few that are estimated best it is the first whose machine code keeps its vectors in registers; where none
    does, the one with the least estimate, spilling counted in.

    Args:
        task: what to compute.
        settings: for which target, and the seed.
        algorithms: to choose from; all that are no library's and of no unusual error by default.
        space: to choose from in place of the workload's own, such as that of a template.
        hardware: what the estimate knows of the machine; by default what the target says.

    Raises:
        ConfigError: no candidate is legal.
    """
    usual = winograd.within(task.workload.algorithms)
    own = [algorithm for algorithm in usual if algorithm != LIBRARY]  # there are loops to see
    shown = own if algorithms is None else algorithms
    settings = settings.of(task)
    found = space or generate(task.workload, hardware or settings.target.hardware, shown)
    cold = settings.measure.cache == "network"

    @cache
    def extractor(sketch: int) -> FeatureExtractor:
        of = found.sketches[sketch]
        return FeatureExtractor(of.program, of.columns, found.hardware, cold)

    def score(sketch: int, choices: Any) -> Any:
        return -extractor(sketch).roofline(found.sketches[sketch].expand(choices))

    rng = settings.generator(task.workload.key, "lower")
    try:
        best = search.get("evolution")(found, score, rng, first_epsilon=0.0, first_sample=2048).ask(INSPECTED)
    except NoLegalSchedule as error:
        raise ConfigError(str(error)) from None
    chosen = _least_spilling(found, best, settings.target, score)
    of = found.sketches[chosen.sketch]
    choices = np.array(chosen.choices, np.int32)
    return Scheduled(task, of.algorithm, of.trace(choices), float(-score(chosen.sketch, choices[None])[0]))


def _least_spilling(space: SearchSpace, candidates: Sequence[Candidate], target: Target, score: Any) -> Candidate:
    """The best of candidates by their estimates and by what their machine code spills."""

    def seconds(candidate: Candidate) -> float:
        return float(-score(candidate.sketch, np.array([candidate.choices], np.int32))[0])

    ordered = sorted(candidates, key=seconds)
    found: list[tuple[float, int, Candidate]] = []
    for candidate in ordered:
        try:
            spilled = target.spills(space.program(candidate))
        except (BuildError, ScheduleError):
            continue  # whoever builds what is chosen reports it
        if spilled <= FEW_SPILLS:
            return candidate
        found.append((seconds(candidate) * (1 + SPILL_COST * spilled), len(found), candidate))
    return min(found)[2] if found else ordered[0]
