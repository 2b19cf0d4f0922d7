"""Model files whose shapes leave some sizes open: read at any sizes, and compiled for all of them without trials."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from autotune.compiler.executable.graph_family import GraphAt
from autotune.compiler.job import NetworkJob
from autotune.config import ConfigError
from autotune.graph.frontends.onnx.file import reading_once
from autotune.graph.ir import Array, Graph
from autotune.tuner.task import Task
from search_space.terms import SizePoint

if TYPE_CHECKING:
    from autotune.compiler.sources import ModelSource


class OpenModel:
    """Model at any sizes; it takes the place of a `Network`, which has one shape.

    Args:
        job: job of the model.
        source: model in place of the one that the configuration names.

    Attributes:
        name: name of the network.
        shapes: shapes that it takes.
        in_one_file: whether the model is one file, which refers to no other one; known once the model was read.
        tasks, device: attributes of a `Network`, which are empty here.

    Raises:
        ConfigError: an option excludes open sizes.
    """

    tasks: Sequence[Task] = ()
    device: str | None = None

    def __init__(self, job: NetworkJob, source: ModelSource | None) -> None:
        _check(job)
        self.shapes = job.options.shapes  # checks that no other option excludes open sizes
        self.name, self.in_one_file = job.config.name, False
        self._job, self._source = job, job.read_module() if source is None else source
        self._arrays: dict[Hashable, Array] = {}

    @property
    def graph(self) -> GraphAt:
        """Function that reads the model at some sizes, and applies the passes."""
        return self._read

    def _read(self, point: SizePoint) -> Graph:
        config, keys = self._job.config, self._job.config.network
        known = dict(zip(self.shapes.sizes, point, strict=True))
        network = keys.model_copy(update={"sizes": {}, "shapes": _shapes_at(keys.shapes, known)})
        fixed = replace(self._job, config=config.model_copy(update={"network": network}))
        with reading_once(self._arrays):
            model = fixed.load(source=self._source, weights=False)
        self.in_one_file = model.in_one_file
        return model.graph


def _shapes_at(shapes: Mapping[str, Sequence[int | str]], sizes: Mapping[str, int]) -> dict[str, list[int | str]]:
    return {name: [sizes[n] if isinstance(n, str) else n for n in shape] for name, shape in shapes.items()}


def _check(job: NetworkJob) -> None:
    """Refuses keys of a configuration that exclude open sizes.

    Raises:
        ConfigError: a size is in no shape, or a key excludes open sizes.
    """
    config, keys = job.config, job.config.network
    used = {extent for shape in keys.shapes.values() for extent in shape if isinstance(extent, str)}
    if unused := [name for name in keys.sizes if name not in used]:
        raise ConfigError(f"each of `sizes` must stand in `shapes`, but {unused[0]} does not", "network.sizes")
    for key, given in {"trials": config.trials != 0, "lock": config.lock is not None}.items():
        if given:
            raise ConfigError(f"`{key}` must be left out where `sizes` are open, but it is given", key)
