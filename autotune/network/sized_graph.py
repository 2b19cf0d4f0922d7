"""From a graph function of open sizes to one executable for all of them, see `autotune.executable.graph_family`.

There are no trials: schedules at known sizes are given, or chosen without trials.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from autotune.executable.compile import Compiler
from autotune.executable.graph_family import GraphAt
from autotune.executable.shapes import ShapeSet
from autotune.executable.weights import Weights
from autotune.graph.ir import Array
from autotune.network.schedules import Schedules
from autotune.network.writing import Keep, load_written, write_compiled
from autotune.tuning.settings import Settings
from search_space.ir.intervals import Span
from targets.executable import Executable


def write_sized(
    graph_at: GraphAt,
    sizes: Mapping[str, Span],
    schedules: Schedules,
    folder: Path,
    settings: Settings,
    weights_file: bool = True,
    weights: Weights | None = None,
) -> Sequence[Array] | Array:
    """Writes the executable of a network of open sizes to `folder`.

    Args:
        graph_at: sizes, in the order of `sizes`, → the network's graph, ready for kernels.
        sizes: least and greatest value of each, by name.
        schedules: of kernels at known sizes.
        folder: to write.
        settings: target and threads.
        weights_file: whether the weights are written, too.
        weights: as of `Compiler`.

    Returns:
        The weights, see `Compiler.write`.

    Raises:
        NotOpen: the network is not one at all sizes, or no kernel of a part of it holds for a range.
        ConfigError, BuildError, RuntimeError: as of `write_graph`.
    """

    def compiler() -> Compiler:
        cold = settings.measure.cache == "network"
        built, cache, shapes = schedules.built, schedules.cache, ShapeSet.of(sizes)
        name = settings.target.name
        return Compiler(graph_at, schedules, name, settings.threads, cache, built, weights, shapes, cold)

    return write_compiled(compiler, schedules, folder, weights_file)


def load_sized(
    graph_at: GraphAt,
    sizes: Mapping[str, Span],
    schedules: Schedules,
    folder: Path,
    settings: Settings,
    keep: Keep | None = None,
) -> Executable:
    """The executable of a network of open sizes; its weights do not go through a file.

    Args:
        folder: for its other files, and for the weights if it is saved or pickled.
        keep: called with the weights beside loading.
    """
    write = partial(write_sized, graph_at, sizes, schedules, folder, settings)
    return load_written(write, folder, settings, keep)
