"""From a graph to its executable, by the roofline or by a search: what compiling and tuning in the background share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from autotune.cache.place import open_cache
from autotune.config import Measure
from autotune.executable.compile import Compiler
from autotune.executable.ranges import sampling_of
from autotune.graph.decisions import Decisions
from autotune.graph.ir import Array, Graph
from autotune.network.options import CompileOptions, Precision
from autotune.network.pipeline import pipeline_of
from autotune.network.schedules import Schedules
from autotune.network.selection import Limits, select
from autotune.network.sized_graph import load_sized
from autotune.network.tasks import tasks_of
from autotune.network.writing import load_graph
from autotune.pytorch.options import Options
from autotune.schedule import Schedule
from autotune.schedule_store import ScheduleStore
from autotune.tuning.record_store import RecordStore
from autotune.tuning.result import records_of
from autotune.tuning.settings import Settings
from autotune.tuning.task import CPU, Task
from autotune.tuning.tune_tasks import Stopped, tune_kernels
from search_space.ir.intervals import Span
from search_space.scratch import ScratchFolder
from search_space.terms import Point
from search_space.workloads import Workload
from targets import registry
from targets.native_executable import NativeExecutable
from targets.threads import host_cores

Stop = Callable[[], bool]
"""Says whether what is under way is wanted no more; asked often."""


@dataclass(frozen=True)
class Source:
    """What an executable was made of.

    Attributes:
        graph: with its constants, which may lie in memory of the model.
        schedules: by which it was compiled.
        digest: of the constants as it was compiled.
    """

    graph: Graph
    schedules: Schedules
    digest: str


class Loaded:
    """An executable as a `Compiled`.

    Attributes:
        executable: of a graph; another one of the same graph may take its place between two calls.
        source: of the executable, for as long as somebody may want to make a faster one.
    """

    def __init__(self, executable: NativeExecutable, source: Source | None = None) -> None:
        self.executable, self.source = executable, source

    def __call__(self, arrays: Sequence[Array]) -> tuple[Array, ...]:
        """One inference."""
        return self.executable.infer(arrays)


@dataclass(frozen=True)
class Plan:
    """How kernels of graphs are chosen.

    Attributes:
        settings: of a search, and of choices without trials.
        limits: of all schedules.
        options: of the passes.
    """

    settings: Settings
    limits: Limits
    options: CompileOptions

    @classmethod
    def of(cls, options: Options) -> Plan:
        """The plan that options state."""
        threads = options.threads or min(torch.get_num_threads(), host_cores())
        measure = Measure(cache="network", threads=threads)
        settings = Settings(registry.get(CPU), options.trials, options.seed, measure=measure)
        limits = Limits(named=tuple(options.algorithms), hardware=settings.target.hardware)
        return cls(settings, limits, CompileOptions(settings.target, precision=Precision(options.precision)))

    def lowered(self, graph: Graph) -> Graph:
        """Takes a graph as an importer gives it through the passes."""
        return pipeline_of(self.options).run(graph).graph

    def tasks(self, graph: Graph) -> list[Task]:
        """The distinct kernels of a graph; they hold nothing of its constants."""
        return tasks_of(graph, None, self.settings.target.alignment)

    def schedules(self, store: ScheduleStore | None = None) -> Schedules:
        """Returns the schedules of a store, and choices without trials for the kernels that it has none of."""
        return Schedules(store, self.settings, self.limits, cache=open_cache())

    def compiler(self, graph: Graph, chosen: Callable[[Workload], Schedule]) -> Compiler:
        """What writes a graph's executable."""
        settings = self.settings
        return Compiler(graph, chosen, settings.target.name, settings.threads, open_cache())

    def load(self, folder: Path) -> NativeExecutable:
        """What a folder holds, which is not needed any more then."""
        return NativeExecutable(folder, self.settings.threads)

    def built(self, graph: Graph, schedules: Schedules) -> NativeExecutable:
        """A graph's executable."""
        with ScratchFolder("pytorch") as place:  # once loaded, an executable needs no file
            executable = load_graph(graph, schedules, Path(place), self.settings)
        assert isinstance(executable, NativeExecutable), "the CPU's are"
        return executable

    def built_open(self, graph_at: Callable[[Point], Graph], sizes: Mapping[str, Span]) -> NativeExecutable:
        """One executable of a graph for all sizes; with trials its kernels are searched at some of them.

        Args:
            graph_at: sizes → the graph as an importer gives it.
            sizes: least and greatest value of each, by name.

        Raises:
            NotOpen: the graph is not one at all sizes.
        """
        plan = replace(self, limits=self.limits.for_open_sizes())
        ready: dict[Point, Graph] = {}

        def at(point: Point) -> Graph:
            if point not in ready:
                ready[point] = self.lowered(graph_at(point))
            return ready[point]

        best: ScheduleStore | None = None
        if self.settings.trials:
            decisions = Decisions()
            with decisions.hold():
                at(tuple(high for _, high in sizes.values()))
                sampling = sampling_of(sizes)
                tasks = [task for p in (*sampling.known, *sampling.found_at) for task in self.tasks(at(p))]
            best = plan.tuned(list({task.workload.key: task for task in tasks}.values()))
        with ScratchFolder("pytorch") as place:
            executable = load_sized(at, sizes, plan.schedules(best), Path(place), self.settings)
        assert isinstance(executable, NativeExecutable), "the CPU's are"
        return executable

    def tuned(self, tasks: Sequence[Task], stop: Stop = lambda: False) -> ScheduleStore:
        """The fastest schedules that a search of all tasks finds, in child processes.

        Raises:
            Stopped: it was to stop; children have ended.
            NoLegalSchedule: a task that has none.
        """
        results = tune_kernels(tasks, self.settings, self.limits.allowed, stop=stop)
        if stop():
            raise Stopped
        store = RecordStore(records_of(results), self.limits.allowed)
        return select(tasks, store, self.settings, self.limits)
