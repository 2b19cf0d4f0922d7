"""Databases of schedules, shipped and the user's, as a store; and initial candidates of searches."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import islice

import numpy as np

from autotune.schedule import Schedule
from autotune.schedule_store import ScheduledWorkload
from autotune.tuner.database import open_schedules
from autotune.tuner.database.entry import Entry, make_entry_key, schedule_lanes
from autotune.tuner.database.projection import project
from autotune.tuner.search.base import Candidate
from autotune.tuner.settings import Settings
from costmodel.dataset.build import machine_name
from costmodel.features import get_extractor
from measure.host import describe_host
from search_space.hardware import Hardware
from search_space.space import SearchSpace, generate
from search_space.workloads import Workload
from targets.base import Target

NEAREST = 8
"""Largest number of entries of other workloads that a search begins with."""


class EntryStore:
    """Schedules of the database that settings name, for the threads and the cache state of the settings.

    Args:
        settings: settings of the run, which name the database.
        list_algorithms: function workload → algorithms that its schedule may have.
        hardware: limits of the machine; None: those of the target.

    Raises:
        DatabaseError: a file cannot be read.
    """

    def __init__(
        self,
        settings: Settings,
        list_algorithms: Callable[[Workload], Collection[str]] = lambda workload: workload.algorithms,
        hardware: Hardware | None = None,
    ) -> None:
        self._settings, self._list_algorithms, self._hardware = settings, list_algorithms, hardware
        self._database = open_schedules(settings.search.database)

    def best(self, workload: Workload, target: Target, k: int | None = 1) -> Sequence[ScheduledWorkload]:
        """Returns schedules of exactly this workload that its search space contains, those of this machine first.

        Seconds are the roofline's, comparable with those of schedules chosen without measurements.
        """
        if not len(self._database):
            return ()
        settings, machine = self._settings.on(target.name), self._hardware or target.hardware
        allowed = self._list_algorithms(workload)
        answers = (
            answer
            for entry in self._exact(workload, settings, machine)
            if entry.algorithm in allowed and (answer := _find_schedule(entry, workload, settings, machine)) is not None
        )
        return list(islice(answers, k))

    def add(self, record: ScheduledWorkload) -> bool:
        """Refuses: a database is changed by `autotune database merge`."""
        return False

    def nearest(self, workload: Workload, target: Target, most: int = NEAREST) -> list[Entry]:
        """Returns at most so many entries of other workloads of the same kind, the nearest first."""
        settings, machine = self._settings.on(target.name), self._hardware or target.hardware
        lanes, cache = schedule_lanes(machine), settings.measure.cache
        return self._database.nearest(workload, target.name, lanes, settings.threads, cache, most)

    def candidates(self, space: SearchSpace, target: Target, most: int) -> dict[Candidate, bool]:
        """Returns at most so many candidates to begin a search with, and whether each is of exactly this workload.

        Candidates of the workload itself come first, then others by distance.
        """
        exact = self._exact(space.workload, self._settings.on(target.name), space.hardware)
        answers: dict[Candidate, bool] = {}
        for entry in (*exact, *self.nearest(space.workload, target)):
            candidate = project(entry, space)
            if candidate is not None:
                answers.setdefault(candidate, entry in exact)
        return dict(islice(answers.items(), most))

    def _exact(self, workload: Workload, settings: Settings, machine: Hardware) -> list[Entry]:
        key = make_entry_key(
            workload, settings.target.name, schedule_lanes(machine), settings.threads, settings.measure.cache
        )
        return self._database.exact(key, machine_name(describe_host(), settings.target.simulated))


def _find_schedule(entry: Entry, workload: Workload, settings: Settings, machine: Hardware) -> ScheduledWorkload | None:
    """Returns the schedule of an entry; None if the search space does not contain exactly its numbers."""
    space = generate(workload, machine, [entry.algorithm])
    candidate = project(entry, space)
    if candidate is None:
        return None
    sketch = space.sketches[candidate.sketch]
    if sketch.values(candidate.choices) != dict(entry.values):
        return None
    extractor = get_extractor(
        sketch.program, sketch.columns, machine, settings.measure.cache == "network", settings.threads
    )
    columns = sketch.expand(np.array([candidate.choices], np.int32).reshape(1, -1))
    return ScheduledWorkload(
        workload,
        settings.target,
        Schedule(entry.algorithm, sketch.trace(candidate.choices)),
        float(extractor.roofline(columns)[0]),
        provisional=True,
    )
