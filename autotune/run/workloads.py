"""What a configuration names to be tuned: an operator with its sizes, or a network."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.config import ConfigError, RunConfig, WorkloadConfig, errors_at
from autotune.tuning.sizes.family import Family
from measure.notices import notice_if_slow
from search_space import workloads
from search_space.operators import LIBRARY, named
from search_space.operators.checks import nearest
from search_space.workloads import Workload
from targets import registry
from targets.base import Target

if TYPE_CHECKING:
    from onnx import ModelProto

    from autotune.cache.kernels import KernelCache
    from autotune.graph.ir import Graph
    from autotune.graph.mixed import Mixture
    from autotune.network.load import Network
    from autotune.network.options import CompileOptions
    from autotune.network.selection import Limits


def network_of(
    config: RunConfig, at: str = "model", again: bool = False, model: ModelProto | None = None, weights: bool = True
) -> Network:
    """The network of a run, imported and optimised.

    Args:
        config: of the run.
        at: key that names the model, for messages.
        again: whether mixed precision is chosen anew, where the run folder has a choice.
        model: in place of the one that the configuration names.
        weights: whether the network's model has all of its weights, which only what is compared with it needs.

    Raises:
        ConfigError: an unknown model or pass, or a model that cannot be compiled.
    """
    from autotune.graph.onnx_model import inferred, load_model
    from autotune.network.load import load_network

    keys = config.network
    what = "reading" if keys.precision != "mixed" else "reading and choosing precisions of"
    with notice_if_slow(f"{what} {config.model}"), errors_at(at):
        if keys.sizes:
            raise ConfigError("`sizes` must be left out, but for compiling without trials", "network.sizes")
        shapes = {name: tuple(map(int, shape)) for name, shape in keys.shapes.items()}
        model = load_model(str(config.model), shapes, weights) if model is None else inferred(model, shapes)
        network = load_network(model, config.name, compile_options_of(config), _chooser(config, again), weights)
    if not network.tasks:
        raise ConfigError(f"a model must have something to compute, but {config.model} has not", at)
    return network


def compile_options_of(config: RunConfig) -> CompileOptions:
    """Translates a configuration to the options of a compilation.

    Raises:
        ValueError: options that exclude each other, or an unknown target.
    """
    from autotune.network.options import CompileOptions, Precision, Quantise

    keys, device = config.network, device_of(config)
    mode = keys.quantise or (None if device is None else "shift8")
    return CompileOptions(
        target_of(config),
        device,
        Precision(keys.precision),
        None if mode is None else Quantise(mode),
        keys.quantisation,
        keys.passes,
        keys.substitutions is not None,
        {name: (low, high) for name, (low, high) in keys.sizes.items()},
        config.seed,
    )


def _chooser(config: RunConfig, again: bool) -> Callable[[Graph, ModelProto], Mixture] | None:
    """What chooses the precision of each kernel; None where it is one for all."""
    if config.network.precision != "mixed":
        return None
    from autotune.network.mixed import DEFAULT, Chooser
    from autotune.run.folder import PRECISION
    from autotune.tuning.settings import Settings

    keys = config.network
    settings = Settings(target_of(config), config.trials, config.seed, config.search, config.cost_model, config.measure)
    return Chooser(
        settings,
        limits_of(config),
        DEFAULT if keys.accuracy is None else keys.accuracy,
        config.records_path,
        None if keys.quantisation.data is None else Path(keys.quantisation.data),
        None if again else config.folder / PRECISION,
        keys.quantisation if keys.quantise == "int8" else None,
    )


def limits_of(config: RunConfig) -> Limits:
    """What a configuration demands of algorithms."""
    from autotune.network.selection import Limits

    keys, megabytes = config.network, config.network.max_extra_mb
    extra = None if megabytes is None else int(megabytes * 1e6)
    hardware = target_of(config).hardware
    return Limits(config.search.algorithms, tuple(keys.algorithms), keys.max_algorithm_error, extra, hardware)


def cache_of(config: RunConfig) -> KernelCache | None:
    """What compiling has found out before; None where nothing is kept.

    Raises:
        ConfigError: a folder that others may write to.
    """
    from autotune.cache.place import open_cache

    with errors_at("cache"):
        return open_cache(config.cache)


def device_of(config: RunConfig) -> Target | None:
    """The accelerator that a model is to run on, as far as it can; None where the target takes the whole model.

    Raises:
        ValueError: an unknown target.
    """
    target = registry.get(config.target)
    return target if config.model is not None and target.host else None


def target_of(config: RunConfig) -> Target:
    """What computes a run's tasks, but for those that an accelerator takes of a model.

    Raises:
        ValueError: an unknown target.
    """
    device = device_of(config)
    return registry.get(config.target if device is None else device.host)


def family_of(config: RunConfig) -> Family:
    """The workloads that a configuration with open sizes describes, each size tried.

    Raises:
        ConfigError: an argument that there is not, or sizes for which the operator is not defined.
    """
    assert config.workload is not None and config.sizes is not None
    with errors_at("workload"):
        operator = named(config.workload.operator)
        if operator.name not in LIBRARY:
            raise ValueError(
                f"`operator` must be one of the library beside `sizes`, but got {config.workload.operator}"
            )
    with errors_at("sizes.argument"):
        family = Family(operator.name, config.sizes.argument, config.workload.arguments)
    with errors_at("workload"):
        for n in config.sizes.at:
            workload_of(config.workload.model_copy(update={config.sizes.argument: n}))
    return family


def workload_of(config: WorkloadConfig) -> Workload:
    """The workload that a configuration describes, its sizes tried.

    Raises:
        ValueError: states the rule and the value.
    """
    operator = named(config.operator)
    parameters = operator.parameters
    for name in config.arguments:
        if name not in parameters:
            hint = nearest(name, parameters)
            raise ValueError(
                f"`{config.operator}` must have arguments among {', '.join(parameters)}, but got {name!r}{hint}"
            )
    missing = [
        name
        for name, parameter in parameters.items()
        if parameter.default is parameter.empty and name not in config.arguments
    ]
    if missing:
        raise ValueError(f"`{config.operator}` must be given {', '.join(missing)}")
    if operator.name not in LIBRARY:
        found = workloads.own(operator, **config.arguments)
    else:
        found = Workload.from_json({"operator": operator.name, "args": config.arguments})
        found.check_size()
    found.tensors(found.algorithms[0])  # states what is wrong with impossible sizes
    return found
