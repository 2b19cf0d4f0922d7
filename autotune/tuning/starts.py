"""Candidates that a search begins with: the schedule of this very workload, and those of the workloads most like it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autotune.database.entry import Entry, lanes_of, place_of
from autotune.database.projection import project
from autotune.database.store import ScheduleDatabase
from autotune.search.base import Candidate
from autotune.tuning.settings import Settings
from autotune.tuning.task import Task
from costmodel.dataset.build import machine_of
from costmodel.features import extractor_of
from measure.host import describe_host
from search_space.hardware import Hardware
from search_space.schedule.trace import Trace
from search_space.space import SearchSpace, generate

NEAREST = 8
"""Entries of other workloads that are looked at."""


@dataclass(frozen=True)
class Start:
    """A candidate to begin with, and where it comes from."""

    candidate: Candidate
    entry: Entry
    exact: bool


def starts(database: ScheduleDatabase, space: SearchSpace, settings: Settings, most: int) -> list[Start]:
    """At most so many candidates to begin with, each once: those of the workload itself, then by likeness.

    Args:
        database: of schedules.
        space: of the workload.
        settings: target, threads and cache state.
        most: candidates.
    """
    workload, lanes, threads = space.workload, lanes_of(space.hardware), settings.threads
    target, cache = settings.target.name, settings.measure.cache
    exact = database.exact(place_of(workload, target, lanes, threads, cache), _here(settings))
    like = database.nearest(workload, target, lanes, threads, cache, NEAREST)
    found: dict[Candidate, Start] = {}
    for entry in (*exact, *like):
        candidate = project(entry, space)
        if candidate is not None:
            found.setdefault(candidate, Start(candidate, entry, entry in exact))
    return list(found.values())[:most]


@dataclass(frozen=True)
class Known:
    """A schedule of the database, for a workload that is not searched.

    Attributes:
        algorithm, trace: the schedule.
        seconds: that the roofline says of it, as of schedules that are chosen otherwise.
    """

    algorithm: str
    trace: Trace
    seconds: float


def exact_start(
    database: ScheduleDatabase,
    task: Task,
    settings: Settings,
    algorithms: Sequence[str],
    hardware: Hardware | None = None,
) -> Known | None:
    """The schedule of this very workload, if the database has one whose numbers the space here has.

    Args:
        database: of schedules.
        task: what to compute.
        settings: of the task: target, threads and cache state.
        algorithms: that are allowed.
        hardware: what is known of the machine; by default what the target says.
    """
    machine = hardware or settings.target.hardware
    place = place_of(task.workload, settings.target.name, lanes_of(machine), settings.threads, settings.measure.cache)
    for entry in database.exact(place, _here(settings)):
        if entry.algorithm not in algorithms:
            continue
        space = generate(task.workload, machine, [entry.algorithm])
        candidate = project(entry, space)
        if candidate is None:
            continue
        sketch = space.sketches[candidate.sketch]
        if sketch.values(candidate.choices) == dict(entry.values):  # nothing near it stands in for it
            cold = settings.measure.cache == "network"
            extractor = extractor_of(sketch.program, sketch.columns, machine, cold, settings.threads)
            columns = sketch.expand(np.array([candidate.choices], np.int32).reshape(1, -1))
            return Known(entry.algorithm, sketch.trace(candidate.choices), float(extractor.roofline(columns)[0]))
    return None


def _here(settings: Settings) -> str:
    """The machine, as entries name it."""
    return machine_of(describe_host(), settings.target.simulated)
