"""From a graph that is ready for kernels to the folder of its executable: schedules, kernels, weights."""

from __future__ import annotations

from pathlib import Path

from autotune.executable.compile import Compiler
from autotune.graph.ir import Graph
from autotune.network.schedules import Schedules
from autotune.tuning.settings import Settings


def write_graph(graph: Graph, schedules: Schedules, folder: Path, settings: Settings) -> None:
    """Writes the executable of a graph to `folder`; what is not known yet is chosen and built side by side.

    Raises:
        ConfigError: a workload without a legal candidate.
        BuildError: a kernel that cannot be built.
        RuntimeError: the linker failed, or a process ended.
    """
    try:
        compiler = Compiler(graph, schedules, settings.target.name, settings.threads, schedules.cache, schedules.built)
        schedules.prepare(compiler.workloads)
        compiler.write(folder)
    finally:
        schedules.close()
