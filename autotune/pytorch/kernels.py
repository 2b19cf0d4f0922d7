"""From a graph to something that computes it: the seam between PyTorch's front and what makes executables."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from autotune import schedulers
from autotune.cache.place import open_cache
from autotune.config import Measure
from autotune.executable.compile import Compiler
from autotune.graph.ir import Array, Graph
from autotune.network.prepare import prepared
from autotune.network.schedules import Schedules
from autotune.network.selection import Chosen, Limits, select
from autotune.network.tasks import tasks_of
from autotune.pytorch.options import Options
from autotune.run.run import round_size
from autotune.tuning.loop import run_rounds
from autotune.tuning.pools import make_pool
from autotune.tuning.settings import Settings
from autotune.tuning.task import CPU
from autotune.tuning.tuner import prepare
from measure.recordlog import RecordLog
from targets import registry
from targets.native_executable import NativeExecutable

Compiled = Callable[[Sequence[Array]], tuple[Array, ...]]
"""Inputs in order, as the graph takes them → outputs in order, arrays of the caller's own."""


class Loaded:
    """An executable as a `Compiled`.

    Attributes:
        executable: of a graph; another one of the same graph may take its place between two calls.
    """

    def __init__(self, executable: NativeExecutable) -> None:
        self.executable = executable

    def __call__(self, arrays: Sequence[Array]) -> tuple[Array, ...]:
        """One inference."""
        return self.executable.infer(arrays)


def settings_of(options: Options) -> Settings:
    """The settings by which kernels are chosen, or searched."""
    threads = options.threads or torch.get_num_threads()
    measure = Measure(cache="network", threads=threads)
    return Settings(registry.get(CPU), options.trials, options.seed, measure=measure)


def compile_graph(graph: Graph, options: Options) -> Loaded:
    """Compiles a graph with its constants.

    Args:
        graph: as an importer gives it.
        options: how.

    Raises:
        ValueError: a precision that the graph excludes, or a kernel without a legal schedule.
    """
    settings = settings_of(options)
    ready = prepared(graph, settings.target, options.precision)
    limits = Limits(hardware=settings.target.hardware)
    with tempfile.TemporaryDirectory(prefix="autotune-") as place:  # once loaded, an executable needs no file
        best = _tuned(ready, settings, limits, options.trials) if options.trials else {}
        cache = open_cache()
        schedules = Schedules(best, settings, limits, cache=cache)
        compiler = Compiler(ready, schedules, settings.target.name, settings.threads, cache)
        schedules.prepare(compiler.workloads)
        compiler.write(Path(place))
        return Loaded(NativeExecutable(place, settings.threads))


def _tuned(graph: Graph, settings: Settings, limits: Limits, trials: int) -> Chosen:
    """The fastest schedules that a search of all tasks finds."""
    tasks = tasks_of(graph, None, settings.target.alignment)
    settings = settings.searching(batch=round_size(settings.search.batch, trials, len(tasks)))
    tunings = [prepare(task, settings, algorithms=limits.allowed(task.workload)) for task in tasks]
    for tuning in tunings:
        if tuning.failure is not None:
            raise tuning.failure
    with make_pool(settings.measure) as pool:
        results = run_rounds(tunings, pool, None, (), schedulers.get(settings.search.scheduler)(), trials)
    kept = (record for result in results for some in (result.records, result.others, result.finals) for record in some)
    return select(tasks, RecordLog(kept), limits)
