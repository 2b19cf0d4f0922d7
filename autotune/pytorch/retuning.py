"""Tuning in the background: a compiled graph runs with choices made without trials while its kernels are searched.

The faster executable takes the place of the first one between two calls. It does so only

- where it was faster, both running in turns in processes of their own,
- where the graph's constants still have the digest with which the first one was compiled,
- where the model is still in use: a job holds it weakly, and stops soon after it is freed.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Hashable
from pathlib import Path

import numpy as np

from autotune.compiler.checking.process import NetworkProcess, time_in_turns
from autotune.compiler.plan import Stop
from autotune.graph.ir import Graph
from autotune.pytorch.background import of_process
from autotune.pytorch.building import LoadedGraph, Plan, Source
from autotune.schedule import Schedule
from autotune.schedule_store import ScheduleStore
from autotune.tuner.tune_tasks import TuningStop
from autotune.units import latency
from search_space.scratch import ScratchFolder
from search_space.workloads import Workload
from targets.manifest import digest

_LOG = logging.getLogger(__name__)

TURNS = 10
"""Turns of each of two executables."""
TURN_SECONDS = 0.05
"""Length of a turn; warming up takes as long."""

_STORES: dict[Hashable, ScheduleStore] = {}
"""Schedules that searches of this process returned, by tasks and settings of the search."""


def retune(loaded_graph: LoadedGraph, plan: Plan) -> None:
    """Queues a compiled graph for tuning in this process's background thread.

    Args:
        loaded_graph: compiled graph, with its source.
        plan: plan of the search.
    """
    of_process().add(Retuning(loaded_graph, plan))


def compute_digest(graph: Graph) -> str:
    """Computes the digest of all constants of a graph, in order."""
    arrays = (np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in graph.constants.values())
    return digest(*(array.data for array in arrays))


class Retuning:
    """A search of a graph's kernels, as a job.

    Args:
        loaded_graph: compiled graph; only a weak reference to it is kept.
        plan: plan of the search.
    """

    name = "tuning a graph in the background"

    def __init__(self, loaded_graph: LoadedGraph, plan: Plan) -> None:
        self._graph_ref, self._plan = weakref.ref(loaded_graph), plan

    def run(self, stop: Stop) -> None:
        """Searches for schedules, and replaces the executable if the new one is faster."""

        def is_unwanted() -> bool:
            return stop() or self._graph_ref() is None

        try:
            best = self._search(is_unwanted)
            with ScratchFolder("retuning") as place:
                before, after = Path(place) / "before", Path(place) / "after"
                if not self._write(best, before, after, stop):
                    return
                seconds = in_turns(before, after, self._plan.settings.threads, is_unwanted)
                said = f"{latency(seconds[1])}, {latency(seconds[0])} before"
                if seconds[1] < seconds[0]:
                    self._put(after, said)
                else:
                    _LOG.info("what a search in the background has found is not faster, and stays out: %s", said)
        except TuningStop:
            _LOG.info("a search in the background was given up: the model is gone, or the process ends")
        finally:
            if (loaded := self._graph_ref()) is not None:
                loaded.source = None

    def _require_loaded(self) -> tuple[LoadedGraph, Source]:
        """Returns the compiled graph, and the source it was compiled from.

        Raises:
            Stopped: the graph is in use no more.
        """
        loaded = self._graph_ref()
        if loaded is None or loaded.source is None:
            raise TuningStop
        return loaded, loaded.source

    def _search(self, stop: Stop) -> ScheduleStore:
        """Searches for schedules, or reuses the result for a graph of equal tasks, as with other parameters."""
        tasks, settings = self._plan.tasks(self._require_loaded()[1].graph), self._plan.settings
        key = (*(task.workload.key for task in tasks), settings.trials, settings.seed, settings.threads)
        if key not in _STORES:
            _STORES[key] = self._plan.tune(tasks, stop)
        return _STORES[key]

    def _write(self, best: ScheduleStore, before: Path, after: Path, stop: Stop) -> bool:
        """Writes the graph by the first schedules and by those found; whether there is anything to compare."""
        _, source = self._require_loaded()
        first = source.schedules

        def first_unless_stopped(workload: Workload) -> Schedule:
            if stop():
                raise TuningStop
            return first(workload)

        def best_schedule(workload: Workload) -> Schedule:
            answer = best.best(workload, self._plan.settings.target)
            return answer[0].schedule if answer else first_unless_stopped(workload)

        workloads = [task.workload for task in self._plan.tasks(source.graph)]
        if all(best_schedule(workload) == first_unless_stopped(workload) for workload in workloads):
            _LOG.info("a search in the background has found the schedules that the model has")
            return False
        self._plan.compiler(source.graph, first_unless_stopped).write(before)
        self._plan.compiler(source.graph, best_schedule).write(after)
        if compute_digest(source.graph) != source.digest:
            _LOG.info("parameters have changed during a search in the background: what it has found stays out")
            return False
        return True

    def _put(self, folder: Path, summary: str) -> None:
        loaded, _ = self._require_loaded()
        loaded.executable = self._plan.load(folder)
        _LOG.info("a search in the background has found a faster executable, which runs from here on: %s", summary)


def in_turns(before: Path, after: Path, threads: int, stop: Stop) -> tuple[float, float]:
    """Times an inference of two executables, which take turns in processes of their own.

    Raises:
        Stopped: it was to stop; the processes have ended.
        RuntimeFailure: one of them cannot run.
    """

    def unless_stopped() -> None:
        if stop():
            raise TuningStop

    with (
        NetworkProcess("autotune", threads, folder=str(before)) as first,
        NetworkProcess("autotune", threads, folder=str(after)) as second,
    ):
        first.runtime, second.runtime = "before", "after"
        took = time_in_turns((first, second), TURNS, TURN_SECONDS, pause=0.0, least=1, tick=unless_stopped)
    return took["before"].steady, took["after"].steady
