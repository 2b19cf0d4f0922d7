"""Networks of open sizes: from an ONNX model whose shapes leave some open to one executable for all of them.

The model is read at a few sizes, and what the graphs have in common is compiled (`autotune.executable.opening`). There
are no trials: schedules are the roofline's choice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.config import ConfigError, RunConfig, errors_at
from autotune.executable.compile_sizes import SizedCompiler
from autotune.executable.loading import load
from autotune.executable.opening import GraphAt, NotOpen, Opening
from autotune.executable.ranges import ranges_of
from autotune.graph.ir import Array
from autotune.network.schedules import Schedules
from autotune.tuning.settings import Settings
from measure.notices import notice_if_slow
from search_space.ir.intervals import Span
from search_space.terms import Point
from targets import registry
from targets.executable import Executable

if TYPE_CHECKING:
    from onnx import ModelProto

    from autotune.graph.ir import Graph


def write_sized(
    graph_at: GraphAt,
    sizes: Mapping[str, Span],
    schedules: Schedules,
    folder: Path,
    settings: Settings,
    weights_file: bool = True,
) -> Sequence[Array]:
    """Writes the executable of a network of open sizes to `folder`.

    Args:
        graph_at: sizes, in the order of `sizes`, → the network's graph, ready for kernels.
        sizes: least and greatest value of each, by name.
        schedules: of kernels at known sizes.
        folder: to write.
        settings: target and threads.
        weights_file: whether the weights are written, too.

    Returns:
        The weights, see `Compiler.write`.

    Raises:
        NotOpen: the network is not one at all sizes, or no kernel of a part of it holds for a range.
        ConfigError, BuildError, RuntimeError: as of `write_graph`.
    """
    target = settings.target
    if not target.open_sizes:
        raise NotOpen(f"`target` of open sizes must be one whose kernels take them, but got {target.name}")
    try:
        opening = Opening(graph_at, sizes, ranges_of(sizes), target.alignment)
        compiler = SizedCompiler(opening, schedules, target.name, settings.threads, schedules.cache, schedules.built)
        schedules.prepare(compiler.workloads)
        weights = compiler.write(folder, weights_file)
    finally:
        schedules.close()
    if schedules.cache is not None:
        schedules.cache.store.trim()
    return weights


def load_sized(
    graph_at: GraphAt, sizes: Mapping[str, Span], schedules: Schedules, folder: Path, settings: Settings
) -> Executable:
    """The executable of a network of open sizes; its weights do not go through a file.

    Args:
        folder: for its other files, and for the weights if it is saved or pickled.
    """
    kind = registry.executable_of(settings.target.name)
    weights = write_sized(graph_at, sizes, schedules, folder, settings, weights_file=False)
    if kind is None or not kind.holds_weights:
        return load(folder, settings.threads)
    return kind(folder, settings.threads, weights=weights)


def rebuilt_sized(config: RunConfig, model: ModelProto | None, folder: Path, in_memory: bool) -> Executable | None:
    """Compiles a model of open sizes without trials.

    Args:
        config: of the run.
        model: in place of the one that the configuration names.
        folder: to write.
        in_memory: whether the executable is loaded, its weights not written.

    Raises:
        ConfigError: a model that is not one at all sizes, or what does not go with open sizes.
    """
    from autotune.run.resolve import settings_of
    from autotune.run.workloads import cache_of, limits_of

    _check(config)
    settings = settings_of(config)
    schedules = Schedules({}, settings, limits_of(config), None, cache_of(config))
    sizes = {name: (low, high) for name, (low, high) in config.network.sizes.items()}
    graph_at = _reader(config, model, list(sizes))
    with notice_if_slow(f"compiling {config.name} for all sizes"), errors_at("network.sizes"):
        if in_memory:
            return load_sized(graph_at, sizes, schedules, folder, settings)
        write_sized(graph_at, sizes, schedules, folder, settings)
        return None


def _reader(config: RunConfig, model: ModelProto | None, names: Sequence[str]) -> GraphAt:
    """What reads a model at some sizes."""
    from autotune.run.workloads import network_of

    def graph_at(point: Point) -> Graph:
        known = dict(zip(names, point, strict=True))
        network = config.network.model_copy(update={"sizes": {}, "shapes": _shapes_at(config.network.shapes, known)})
        return network_of(config.model_copy(update={"network": network}), model=model, weights=False).graph

    return graph_at


def _shapes_at(shapes: Mapping[str, Sequence[int | str]], sizes: Mapping[str, int]) -> dict[str, list[int | str]]:
    return {name: [sizes[n] if isinstance(n, str) else n for n in shape] for name, shape in shapes.items()}


def _check(config: RunConfig) -> None:
    """Holds a configuration against what open sizes go with.

    Raises:
        ConfigError: something else.
    """
    keys = config.network
    used = {extent for shape in keys.shapes.values() for extent in shape if isinstance(extent, str)}
    if unused := [name for name in keys.sizes if name not in used]:
        raise ConfigError(f"each of `sizes` must stand in `shapes`, but {unused[0]} does not", "network.sizes")
    refused = {
        "trials": config.trials != 0,
        "lock": config.lock is not None,
        "network.quantise": keys.quantise is not None,
        "network.substitutions": keys.substitutions is not None,
        "network.precision": keys.precision == "mixed",
    }
    for key, given in refused.items():
        if given:
            raise ConfigError(f"`{key}` must be left out where `sizes` are open, but it is given", key)
