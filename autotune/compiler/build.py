"""Building of executables from a graph and schedules of its kernels: in a folder or memory, of one shape or many."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from autotune.compiler.executable.arrangement import ArenaOptions
from autotune.compiler.executable.compile import Compiler
from autotune.compiler.executable.graph_family import GraphAt
from autotune.compiler.executable.loading import load
from autotune.compiler.executable.shapes import FIXED, ShapeSet
from autotune.compiler.executable.weights import Weights
from autotune.compiler.schedules import Schedules
from autotune.graph.ir import Array, Graph
from autotune.tuner.settings import Settings
from search_space.dtypes import FLOATS, numpy_dtype
from targets import registry
from targets.executable import Executable

if TYPE_CHECKING:
    from autotune.compiler.open_model import OpenModel
    from autotune.compiler.prepare import Network

Keep = Callable[[Sequence[Array]], None]
"""Function of the weights of an executable, in parts (n,) one after the other; its manifest is written before."""


def compile_graph(
    graph: Graph | GraphAt,
    schedules: Schedules,
    folder: Path,
    settings: Settings,
    shapes: ShapeSet = FIXED,
    weights: Weights | None = None,
    weights_file: bool = True,
    arena: ArenaOptions | None = None,
) -> Sequence[Array] | Array:
    """Writes the executable of a graph to a folder; missing schedules are chosen and kernels built in parallel.

    Args:
        graph: graph ready for kernels; where sizes are open, a function of them.
        schedules: schedules of kernels at known sizes; they are closed at the end.
        folder: folder to write.
        settings: target and threads.
        shapes: shapes that the executable takes.
        weights: weights of executables compiled before, see `Compiler`.
        weights_file: whether to write the weights, too.
        arena: conditions on the memory of the graph's values.

    Returns:
        The weights, see `Compiler.write`.

    Raises:
        NotOpen: the network differs between sizes, or a part of it has no kernel for a range.
        ConfigError: a workload has no legal candidate.
        BuildError: a kernel cannot be built.
        RuntimeError: the linker failed, or a process ended.
    """
    try:
        compiler = Compiler(
            graph,
            schedules,
            settings.target.name,
            settings.threads,
            schedules.cache,
            schedules.build_kernels,
            weights,
            shapes,
            settings.measure.cache == "network",
            arena,
            lambda workload: schedules.find_schedule(workload).seconds,
        )
        schedules.prepare(compiler.workloads, compiler.pack)
        schedules.keep_within(compiler.workloads)
        written = compiler.write(folder, weights_file)
    finally:
        schedules.close()
    if schedules.cache is not None:
        schedules.cache.store.trim()
    return written


def compile_in_memory(
    graph: Graph | GraphAt,
    schedules: Schedules,
    folder: Path,
    settings: Settings,
    shapes: ShapeSet = FIXED,
    keep: Keep | None = None,
    arena: ArenaOptions | None = None,
) -> Executable:
    """Compiles a graph; its weights do not go through a file where the target holds them in memory.

    Args:
        graph, schedules, settings, shapes, arena: arguments of `compile_graph`, which also lists the errors raised.
        folder: folder of its other files, and of the weights if it is saved or pickled.
        keep: function that is called while loading, with weights that do not go through a file.
    """
    kind = registry.find_executable_class(settings.target.name)
    in_memory = kind is not None and kind.holds_weights
    weights = compile_graph(graph, schedules, folder, settings, shapes, weights_file=not in_memory, arena=arena)
    if kind is None or not in_memory:
        return load(folder, settings.threads)
    with ThreadPoolExecutor(1, "autotune-keep") as thread:
        keeping = (
            None if keep is None else thread.submit(keep, [weights] if isinstance(weights, np.ndarray) else weights)
        )
        executable = kind(folder, settings.threads, weights=weights)
    if keeping is not None:
        keeping.result()  # raises its error
    return executable


def write_network(network: Network | OpenModel, schedules: Schedules, folder: Path, settings: Settings) -> None:
    """Writes the network's executable to `folder`; one of steps on several targets where an accelerator takes part."""
    if network.device is None:
        compile_graph(network.graph, schedules, folder, settings, network.shapes)
        return
    from autotune.compiler.executable.compile_steps import compile_stepwise

    graph = network.graph
    assert isinstance(graph, Graph), "accelerators take no open sizes"
    compile_stepwise(graph, schedules, folder, settings.target.name, network.device, settings.threads)


def compile_network(network: Network | OpenModel, schedules: Schedules, folder: Path, settings: Settings) -> Executable:
    """Compiles a network to `folder`, and loads its executable."""
    write_network(network, schedules, folder, settings)
    return load(folder, settings.threads)


def make_feeds(network: Network, seed: int) -> dict[str, Array]:
    """Draws random inputs: standard normal floats; integers below 100, as token ids are; truth values."""
    rng = np.random.default_rng(seed)
    feeds: dict[str, Array] = {}
    for name, kind in network.graph.inputs.items():
        dtype = numpy_dtype(kind.dtype)
        if kind.dtype in FLOATS:
            feeds[name] = rng.standard_normal(kind.shape).astype(dtype)
        else:
            feeds[name] = rng.integers(0, 2 if dtype.kind == "b" else 100, kind.shape).astype(dtype)
    return feeds
