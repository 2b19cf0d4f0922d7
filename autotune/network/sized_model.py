"""Model files whose shapes leave some sizes open: read at any sizes, and compiled for all of them without trials."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.config import ConfigError, RunConfig, errors_at
from autotune.graph.ir import Array, Graph
from autotune.graph.onnx_file import is_of_one_file, reading_once
from autotune.graph.quantise import BITS
from autotune.network.schedules import Schedules
from autotune.network.sized_graph import load_sized, write_sized
from autotune.network.writing import Keep
from autotune.run.resolve import settings_of
from autotune.run.workloads import cache_of, limits_of, network_of
from autotune.tuning.settings import Settings
from measure.notices import notice_if_slow
from search_space.terms import Point
from targets.executable import Executable

if TYPE_CHECKING:
    from onnx import ModelProto


def write_sized_model(config: RunConfig, model: ModelProto | None, folder: Path) -> None:
    """Compiles a model of open sizes without trials to a folder.

    Args:
        config: of the run.
        model: in place of the one that the configuration names.
        folder: to write.

    Raises:
        ConfigError: a model that is not one at all sizes, or what does not go with open sizes.
    """
    reader, schedules, settings = _prepared(config, model)
    with notice_if_slow(f"compiling {config.name} for all sizes"), errors_at("network.sizes"):
        write_sized(reader, reader.sizes, schedules, folder, settings)


def load_sized_model(
    config: RunConfig, model: ModelProto | None, folder: Path, keep: Keep | None = None
) -> tuple[Executable, bool]:
    """The same, loaded, and whether the model was one file; its weights are in the folder only once it is saved.

    Args:
        keep: called with the weights beside loading, if the model is one file.
    """
    reader, schedules, settings = _prepared(config, model)

    def kept(weights: Sequence[Array]) -> None:
        if keep is not None and reader.in_one_file:
            keep(weights)

    with notice_if_slow(f"compiling {config.name} for all sizes"), errors_at("network.sizes"):
        return load_sized(reader, reader.sizes, schedules, folder, settings, kept), reader.in_one_file


def _prepared(config: RunConfig, model: ModelProto | None) -> tuple[_Reader, Schedules, Settings]:
    _check(config)
    settings = settings_of(config)
    schedules = Schedules({}, settings, limits_of(config).for_open_sizes(), None, cache_of(config))
    return _Reader(config, model), schedules, settings


class _Reader:
    """Reads a model at some sizes.

    Attributes:
        sizes: least and greatest value of each, by name.
        in_one_file: whether the model that was read is a file, and no other one has a part of it.
    """

    def __init__(self, config: RunConfig, model: ModelProto | None) -> None:
        self._config, self._model = config, model
        self.sizes = {name: (low, high) for name, (low, high) in config.network.sizes.items()}
        self.in_one_file = False
        self._arrays: dict[Hashable, Array] = {}

    def __call__(self, point: Point) -> Graph:
        config, keys = self._config, self._config.network
        known = dict(zip(self.sizes, point, strict=True))
        network = keys.model_copy(update={"sizes": {}, "shapes": _shapes_at(keys.shapes, known)})
        with reading_once(self._arrays):
            found = network_of(config.model_copy(update={"network": network}), model=self._model, weights=False)
        self.in_one_file = is_of_one_file(found.model)
        return found.graph


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
        "network.quantise": keys.quantise not in (None, *BITS),
        "network.substitutions": keys.substitutions is not None,
        "network.precision": keys.precision == "mixed",
    }
    for key, given in refused.items():
        if given:
            raise ConfigError(f"`{key}` must be left out where `sizes` are open, but it is given", key)
