"""Model files whose shapes leave some sizes open: read at any sizes, and compiled for all of them without trials."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.config import ConfigError, errors_at
from autotune.graph.ir import Array, Graph
from autotune.graph.onnx.file import reading_once
from autotune.network.job import NetworkJob
from autotune.network.schedules import Schedules
from autotune.network.sized_graph import load_sized, write_sized
from autotune.network.writing import Keep
from autotune.tuning.settings import Settings
from measure.notices import notice_if_slow
from search_space.terms import Point
from targets.executable import Executable

if TYPE_CHECKING:
    from autotune.network.sources import ModelSource


def write_sized_model(job: NetworkJob, source: ModelSource | None, folder: Path) -> None:
    """Compiles a model of open sizes without trials to a folder.

    Args:
        job: what to make.
        source: in place of the model that the configuration names.
        folder: to write.

    Raises:
        ConfigError: a model that is not one at all sizes, or what does not go with open sizes.
    """
    reader, schedules, settings = _prepared(job, source)
    with notice_if_slow(f"compiling {job.config.name} for all sizes"), errors_at("network.sizes"):
        write_sized(reader, reader.sizes, schedules, folder, settings)


def load_sized_model(
    job: NetworkJob, source: ModelSource | None, folder: Path, keep: Keep | None = None
) -> tuple[Executable, bool]:
    """The same, loaded, and whether the model was one file; its weights are in the folder only once it is saved.

    Args:
        keep: called with the weights beside loading, if the model is one file.
    """
    reader, schedules, settings = _prepared(job, source)

    def kept(weights: Sequence[Array]) -> None:
        if keep is not None and reader.in_one_file:
            keep(weights)

    with notice_if_slow(f"compiling {job.config.name} for all sizes"), errors_at("network.sizes"):
        return load_sized(reader, reader.sizes, schedules, folder, settings, kept), reader.in_one_file


def _prepared(job: NetworkJob, source: ModelSource | None) -> tuple[_Reader, Schedules, Settings]:
    _check(job)
    reader = _Reader(job, source)  # reads the options, which refuse what else does not go with open sizes
    schedules = Schedules({}, job.settings, job.limits.for_open_sizes(), None, job.open_cache())
    return reader, schedules, job.settings


class _Reader:
    """Reads a model at some sizes.

    Attributes:
        sizes: least and greatest value of each, by name.
        in_one_file: whether the model that was read is a file, and no other one has a part of it.
    """

    def __init__(self, job: NetworkJob, source: ModelSource | None) -> None:
        self._job, self._source = job, job.read_module() if source is None else source
        self.sizes = dict(job.options.sizes)
        self.in_one_file = False
        self._arrays: dict[Hashable, Array] = {}

    def __call__(self, point: Point) -> Graph:
        config, keys = self._job.config, self._job.config.network
        known = dict(zip(self.sizes, point, strict=True))
        network = keys.model_copy(update={"sizes": {}, "shapes": _shapes_at(keys.shapes, known)})
        fixed = replace(self._job, config=config.model_copy(update={"network": network}))
        with reading_once(self._arrays):
            found = fixed.load(source=self._source, weights=False)
        self.in_one_file = found.source.is_of_one_file
        return found.graph


def _shapes_at(shapes: Mapping[str, Sequence[int | str]], sizes: Mapping[str, int]) -> dict[str, list[int | str]]:
    return {name: [sizes[n] if isinstance(n, str) else n for n in shape] for name, shape in shapes.items()}


def _check(job: NetworkJob) -> None:
    """Holds a configuration against what open sizes go with.

    Raises:
        ConfigError: something else.
    """
    config, keys = job.config, job.config.network
    used = {extent for shape in keys.shapes.values() for extent in shape if isinstance(extent, str)}
    if unused := [name for name in keys.sizes if name not in used]:
        raise ConfigError(f"each of `sizes` must stand in `shapes`, but {unused[0]} does not", "network.sizes")
    for key, given in {"trials": config.trials != 0, "lock": config.lock is not None}.items():
        if given:
            raise ConfigError(f"`{key}` must be left out where `sizes` are open, but it is given", key)
