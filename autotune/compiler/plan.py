"""Settings that decide how kernels of graphs are chosen, and compilation of graphs with them."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from autotune.compiler.build import compile_in_memory
from autotune.compiler.cache.locations import open_cache
from autotune.compiler.executable.arrangement import ArenaOptions
from autotune.compiler.executable.compile import Compiler
from autotune.compiler.executable.graph_family import GraphAt
from autotune.compiler.options import CompileOptions
from autotune.compiler.pipeline import make_pipeline
from autotune.compiler.schedules import Schedules
from autotune.compiler.selection import Limits, select
from autotune.compiler.tasks import list_tasks
from autotune.graph.decisions import Decisions
from autotune.graph.ir import Graph
from autotune.schedule import Schedule
from autotune.schedule_store import ScheduleStore
from autotune.tuner.record_store import RecordStore
from autotune.tuner.result import collect_records
from autotune.tuner.settings import Settings
from autotune.tuner.task import Task
from autotune.tuner.tune_tasks import TuningStop, tune_kernels
from search_space.scratch import ScratchFolder
from search_space.workloads import Workload
from targets.executable import Executable
from targets.native_executable import NativeExecutable

Stop = Callable[[], bool]
"""Check that is called often, and says whether the work under way is unwanted by now."""


@dataclass(frozen=True)
class CompilePlan:
    """Settings that decide how kernels of graphs are chosen.

    Attributes:
        settings: settings of a search, and of choices without trials.
        limits: limits of all schedules.
        options: options of the passes.
    """

    settings: Settings
    limits: Limits
    options: CompileOptions

    def lower(self, graph: Graph) -> Graph:
        """Takes a graph as an importer gives it through the passes."""
        return make_pipeline(self.options).run(graph).graph

    def lowered_at(self, graph_at: GraphAt) -> GraphAt:
        """Takes graphs as an importer gives them at some sizes through the passes, those of each point once."""
        return cache(lambda point: self.lower(graph_at(point)))

    def tasks(self, graph: Graph | GraphAt) -> list[Task]:
        """Lists the distinct kernels of a graph; for open sizes the kernels that are tuned for it.

        Tasks hold no constants of the graph.
        """
        alignment, shapes = self.settings.target.alignment, self.options.shapes
        if isinstance(graph, Graph):
            return list_tasks(graph, None, alignment)
        decisions = Decisions()
        with decisions.hold():
            graph(shapes.greatest)
            graphs = [graph(point) for point in (*shapes.exact, *shapes.samples)]
            every = [task for each in graphs for task in list_tasks(each, None, alignment)]
        return list({task.workload.key: task for task in every}.values())

    def schedules(self, store: ScheduleStore | None = None) -> Schedules:
        """Returns the schedules of a store, and choices without trials for the kernels that it has none of."""
        return Schedules(store, self.settings, self.limits, cache=open_cache())

    def compiler(self, graph: Graph, choose: Callable[[Workload], Schedule]) -> Compiler:
        """Makes the compiler that writes a graph's executable."""
        settings = self.settings
        return Compiler(graph, choose, settings.target.name, settings.threads, open_cache())

    def load(self, folder: Path) -> NativeExecutable:
        """Loads the executable of a folder, which is not needed afterwards."""
        return NativeExecutable(folder, self.settings.threads)

    def build(self, graph: Graph | GraphAt, schedules: Schedules, lasting: bool = False) -> NativeExecutable:
        """Compiles a graph for the CPU, as `build_on_target` does."""
        executable = self.build_on_target(graph, schedules, lasting)
        assert isinstance(executable, NativeExecutable), "the CPU's are"
        return executable

    def build_on_target(
        self,
        graph: Graph | GraphAt,
        schedules: Schedules,
        lasting: bool = False,
        arena: ArenaOptions | None = None,
    ) -> Executable:
        """Compiles a graph as the passes give it, or a function of open sizes to such graphs.

        Args:
            graph: graph or function.
            schedules: schedules of its kernels.
            lasting: whether its files, which only saving and pickling need, last as long as it does.
            arena: conditions on the memory of a graph's values.
        """
        scratch = ScratchFolder("network")
        try:
            folder, shapes = Path(scratch.name), self.options.shapes
            executable = compile_in_memory(graph, schedules, folder, self.settings, shapes, arena=arena)
        except BaseException:
            scratch.cleanup()
            raise
        if lasting:
            weakref.finalize(executable, scratch.cleanup)
        else:
            scratch.cleanup()
        return executable

    def tune(self, tasks: Sequence[Task], stop: Stop = lambda: False) -> ScheduleStore:
        """Searches for the fastest schedules of all tasks, in child processes.

        Raises:
            Stopped: it was to stop; children have ended.
            NoLegalSchedule: a task that has none.
        """
        results = tune_kernels(tasks, self.settings, self.limits.list_algorithms, stop=stop)
        if stop():
            raise TuningStop
        store = RecordStore(collect_records(results), self.limits.list_algorithms)
        return select(tasks, store, self.settings, self.limits)
