"""From a graph that is ready for kernels to its executable, in a folder or in memory: schedules, kernels, weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np

from autotune.executable.compile import Compiler
from autotune.executable.loading import load
from autotune.graph.ir import Array, Graph
from autotune.network.schedules import Schedules
from autotune.tuning.settings import Settings
from targets import registry
from targets.executable import Executable


def write_graph(
    graph: Graph, schedules: Schedules, folder: Path, settings: Settings, weights_file: bool = True
) -> Sequence[Array] | Array:
    """Writes the executable of a graph to `folder`; what is not known yet is chosen and built side by side.

    Args:
        weights_file: whether the weights are written, too.

    Returns:
        The weights, see `Compiler.write`.

    Raises:
        ConfigError: a workload without a legal candidate.
        BuildError: a kernel that cannot be built.
        RuntimeError: the linker failed, or a process ended.
    """

    def compiler() -> Compiler:
        return Compiler(graph, schedules, settings.target.name, settings.threads, schedules.cache, schedules.built)

    return write_compiled(compiler, schedules, folder, weights_file)


def write_compiled(
    make: Callable[[], Compiler], schedules: Schedules, folder: Path, weights_file: bool = True
) -> Sequence[Array] | Array:
    """Writes what a compiler compiles to `folder`; see `write_graph`.

    Args:
        make: makes the compiler, which goes by the schedules.
        schedules: are closed.
    """
    try:
        compiler = make()
        schedules.prepare(compiler.workloads, compiler.pack)
        schedules.keep_within(compiler.workloads)
        weights = compiler.write(folder, weights_file)
    finally:
        schedules.close()
    if schedules.cache is not None:
        schedules.cache.store.trim()
    return weights


Keep = Callable[[Sequence[Array]], None]
"""Takes the weights of an executable, whose manifest is in its folder, in parts (n,) one after the other."""


def load_graph(
    graph: Graph, schedules: Schedules, folder: Path, settings: Settings, keep: Keep | None = None
) -> Executable:
    """The executable of a graph; its weights do not go through a file where the target holds them in memory.

    Args:
        folder: for its other files, and for the weights if it is saved or pickled.
        keep: called beside loading with weights that do not go through a file.
    """
    return load_written(partial(write_graph, graph, schedules, folder, settings), folder, settings, keep)


def load_written(
    write: Callable[[bool], Sequence[Array] | Array], folder: Path, settings: Settings, keep: Keep | None = None
) -> Executable:
    """What `write` writes to a folder, loaded; see `load_graph`.

    Args:
        write: is told whether the weights are to be written, too, and gives them.
    """
    kind = registry.executable_of(settings.target.name)
    if kind is None or not kind.holds_weights:
        write(True)
        return load(folder, settings.threads)
    weights = write(False)
    with ThreadPoolExecutor(1, "autotune-keep") as thread:
        kept = None if keep is None else thread.submit(keep, [weights] if isinstance(weights, np.ndarray) else weights)
        found = kind(folder, settings.threads, weights=weights)
    if kept is not None:
        kept.result()  # what went wrong
    return found
