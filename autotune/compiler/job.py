"""Compilation job of a model, which `autotune run`, `autotune compile` and `autotune.compile` pass on.

Modules that read models and choose schedules are imported on use: an executable from the cache needs none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.config import CompileConfig, ConfigError, errors_at
from autotune.modes import CHOOSING
from autotune.run_files import PRECISION
from autotune.tuner.settings import Settings
from measure.notices import notice_if_slow
from targets import registry
from targets.base import Target

if TYPE_CHECKING:
    from autotune.compiler.block_choice import Seconds
    from autotune.compiler.cache.kernels import KernelCache
    from autotune.compiler.options import CompileOptions
    from autotune.compiler.prepare import Network
    from autotune.compiler.selection import Limits
    from autotune.compiler.sources import ModelSource
    from autotune.graph.ir import Graph
    from autotune.graph.mixed import Mixture
    from autotune.graph.passes.pipeline import GraphPass, Listener

MEGABYTE = 1e6


@dataclass(frozen=True)
class NetworkJob:
    """Model, options of its executable, and the folder to write.

    Attributes:
        config: keys of the configuration that concern the model.
        settings: settings to choose and tune its kernels.
        records: file of measurements, which may be missing.
        passes_by_name: values of `network.substitutions` besides those of `pipeline.SUBSTITUTIONS` → function that
            makes the pass.
    """

    config: CompileConfig
    settings: Settings
    records: Path
    passes_by_name: Mapping[str, Callable[[], GraphPass]] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """The run folder."""
        return self.config.folder

    @cached_property
    def device(self) -> Target | None:
        """The accelerator that computes the layers it supports; None if the target takes the whole model.

        Raises:
            ValueError: the target is unknown.
        """
        return get_accelerator(self.config)

    @cached_property
    def options(self) -> CompileOptions:
        """Options of the compilation.

        Raises:
            ValueError: options exclude each other.
        """
        from autotune.compiler.executable.shapes import ShapeSet
        from autotune.compiler.modes import precision_mode, quantisation_mode
        from autotune.compiler.options import SHIFTS, CompileOptions

        keys = self.config.network
        with errors_at("network.sizes"):
            shapes = ShapeSet.of({name: (low, high) for name, (low, high) in keys.sizes.items()})
        mode = keys.quantise or (None if self.device is None else SHIFTS)
        return CompileOptions(
            self.settings.target,
            self.device,
            precision_mode(keys.precision),
            None if mode is None else quantisation_mode(mode),
            keys.quantisation,
            keys.passes,
            self.substitutions,
            keys.sparsity,
            shapes,
            self.config.seed,
        )

    @cached_property
    def substitutions(self) -> Sequence[GraphPass]:
        """Passes that replace parts of the graph.

        Raises:
            ConfigError: the value is known only to `autotune run`, or unknown.
        """
        from autotune.compiler.pipeline import SUBSTITUTIONS

        name = self.config.network.substitutions
        if name is None:
            return ()
        if name not in self.passes_by_name and name not in SUBSTITUTIONS:
            allowed = ", ".join([*SUBSTITUTIONS, *self.passes_by_name])
            raise ConfigError(f"`substitutions` must be {allowed} or null, but got {name!r}", "network.substitutions")
        return (self.passes_by_name[name]() if name in self.passes_by_name else SUBSTITUTIONS[name],)

    @cached_property
    def limits(self) -> Limits:
        """Limits of the algorithms of kernels."""
        from autotune.compiler.selection import Limits

        keys, megabytes = self.config.network, self.config.network.max_extra_mb
        extra = None if megabytes is None else int(megabytes * MEGABYTE)
        named, hardware = tuple(keys.algorithms), self.settings.target.hardware
        return Limits(self.settings.search.algorithms, named, keys.max_algorithm_error, extra, hardware)

    def open_cache(self) -> KernelCache | None:
        """Opens the cache of kernels; None if caching is off.

        Raises:
            ConfigError: other users may write to the folder.
        """
        from autotune.compiler.cache.locations import open_cache

        with errors_at("cache"):
            return open_cache(self.config.cache)

    def load(
        self,
        at: str = "model",
        again: bool = False,
        source: ModelSource | None = None,
        weights: bool = True,
        listener: Listener | None = None,
    ) -> Network:
        """Imports the model and takes it through the passes.

        Args:
            at: key that names the model, for messages.
            again: whether to choose mixed precision anew, even if the run folder has a choice, and blocks of sparse
                weights without records.
            source: model in place of the one that the configuration names.
            weights: whether the network's model has all of its weights, which only comparisons with it need.
            listener: called after each graph pass.

        Raises:
            ConfigError: the model or a pass is unknown, or the model cannot be compiled.
        """
        from autotune.compiler.prepare import load_network

        config, keys = self.config, self.config.network
        what = "reading and choosing precisions of" if keys.precision in CHOOSING else "reading"
        with notice_if_slow(f"{what} {config.model}"), errors_at(at):
            if keys.sizes:
                raise ConfigError("`sizes` must be left out, but for compiling without trials", "network.sizes")
            shapes = {name: tuple(map(int, shape)) for name, shape in keys.shapes.items()}
            source = self.read_module() if source is None else source
            source = self._read_file(shapes, weights) if source is None else source.at(shapes)
            network = load_network(
                source, config.name, self.options, self._chooser(again), weights, listener, self._read_seconds(again)
            )
        if not network.tasks:
            raise ConfigError(f"a model must have something to compute, but {config.model} has not", at)
        return network

    def reload(self, network: Network, source: ModelSource | None = None) -> Network:
        """Loads a network again after its trials if these decide on parts of it, see `load`."""
        return self.load(source=source) if network.alternatives else network

    def _read_seconds(self, again: bool) -> Seconds:
        """Makes the function of measured seconds that decides on blocks of sparse weights."""
        from autotune.compiler.block_choice import never_measured, read_locked_seconds, read_seconds

        if self.config.network.sparsity is None:
            return never_measured
        if self.config.lock is not None:
            return read_locked_seconds(Path(self.config.lock))
        return never_measured if again else read_seconds(self.records, self.settings, self.limits)

    def read_module(self) -> ModelSource | None:
        """Exports the module of PyTorch that the configuration names by an import path; None if it names a file.

        Raises:
            UnsupportedModelError: torch is missing, the path names no module, or the module cannot be exported.
        """
        from autotune.graph.import_path import call_path, is_import_path

        path, keys = str(self.config.model), self.config.network
        if not is_import_path(path) or Path(path).is_file():
            return None
        module, inputs = call_path(path)
        from autotune.compiler.torch_source import TorchSource

        return TorchSource.of(module, inputs, keys.shapes, self.options.shapes.sizes)

    def _read_file(self, shapes: Mapping[str, tuple[int, ...]], weights: bool) -> ModelSource:
        from autotune.compiler.sources import OnnxSource
        from autotune.graph.frontends.onnx.model import load_model

        return OnnxSource.of(load_model(str(self.config.model), shapes, weights), self.config.seed)

    def _chooser(self, again: bool) -> Callable[[Graph, ModelSource], Mixture] | None:
        """Makes the function that chooses the precision of each kernel; None if all have the same."""
        keys = self.config.network
        if keys.precision not in CHOOSING:
            return None
        from autotune.compiler.mixed.chooser import DEFAULT, Chooser

        return Chooser(
            replace(self.settings, algorithms=()),
            self.limits,
            DEFAULT if keys.accuracy is None else keys.accuracy,
            self.records,
            None if keys.quantisation.data is None else Path(keys.quantisation.data),
            None if again else self.folder / PRECISION,
            keys.quantisation if keys.quantise == "int8" else None,
        )


def get_accelerator(config: CompileConfig) -> Target | None:
    """Returns the accelerator of a model's supported layers; None if the target takes the whole model.

    Raises:
        ValueError: the target is unknown.
    """
    target = registry.get(config.target)
    return target if config.model is not None and target.host else None


def get_target(config: CompileConfig) -> Target:
    """Returns the target of all tasks that no accelerator takes.

    Raises:
        ValueError: the target is unknown.
    """
    device = get_accelerator(config)
    return registry.get(config.target if device is None else device.host)
