"""What a configuration is about: its tasks and how to tune them, checked before anything runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from autotune import schedulers, search
from autotune.config import ConfigError, RunConfig, WorkloadConfig
from autotune.guide import check_exploration
from autotune.models import make_model
from autotune.naming import nearest
from autotune.search.base import make_options
from autotune.task import CPU, Task
from autotune.tuning import Settings
from costmodel.transfer import Options
from measure.notices import notice_if_slow
from search_space import template as templates
from search_space import workloads
from search_space.operators import LIBRARY, named
from search_space.workloads import Workload
from targets import registry as targets

if TYPE_CHECKING:
    from autotune.network import Network
    from search_space.space import SearchSpace


def tasks_of(config: RunConfig, where: str) -> list[Task]:
    """Tasks of a run, or of a collection.

    Args:
        config: of the run.
        where: name of its file, for messages.

    Raises:
        ConfigError: an unknown operator or model, or sizes that do not go together.
    """
    if config.collect is not None:
        from autotune.collect.items import items_of

        return [Task(item.name, item.workload, sum(item.networks.values()) or 1) for item in items_of(config, where)]
    if config.workload is None:
        return list(network_of(config, where).tasks)
    with blamed(f"{where}:workload"):
        workload = workload_of(config.workload)
        workload.tensors(workload.algorithms[0])  # states what is wrong with impossible sizes
    return [Task(config.name, workload)]


def network_of(config: RunConfig, where: str) -> Network:
    """The network of a run, imported and optimised.

    Raises:
        ConfigError: an unknown model or pass, or a model that cannot be compiled.
    """
    from autotune.graph.importer import load_model
    from autotune.graph.quantise import Options
    from autotune.network import Quantisation, load_network

    keys, how = config.network, config.network.quantisation
    with notice_if_slow(f"reading {config.model}"), blamed(f"{where}:model"):
        shapes = {name: tuple(shape) for name, shape in keys.shapes.items()}
        model = load_model(str(config.model), shapes=shapes)
        options = Options(how.method, how.per_channel, how.first, how.last, tuple(how.floats), how.least_decibels)
        quantisation = Quantisation(options, how.inputs, None if how.data is None else Path(how.data))
        device = device_of(config)
        mode = keys.quantise or (None if device is None else "shift8")
        network = load_network(
            model,
            config.name,
            config.seed,
            keys.passes,
            mode,
            quantisation,
            keys.substitutions,
            device,
            target_of(config),
        )
    if not network.tasks:
        raise ConfigError(f"{where}:model: a model must have something to compute, but {config.model} has not")
    return network


def device_of(config: RunConfig) -> str | None:
    """The accelerator that a model is to run on, as far as it can; None where the target takes the whole model.

    Raises:
        ValueError: an unknown target.
    """
    from autotune.graph.offload import block_of

    if config.model is None or block_of(targets.get(config.target).hardware) is None:
        return None
    return config.target


def target_of(config: RunConfig) -> str:
    """What computes a run's tasks, but for those that an accelerator takes of a model.

    Raises:
        ValueError: an unknown target.
    """
    return CPU if device_of(config) is not None else config.target


def settings_of(config: RunConfig, where: str) -> Settings:
    """How the tasks of a run are tuned; those of an accelerator name it themselves, see `Settings.of`.

    Raises:
        ConfigError: an unknown target, strategy or model, or an option that they do not have.
    """
    with blamed(f"{where}:target"):
        target = target_of(config)
        hardware = targets.get(target).hardware
    with blamed(f"{where}:search"):
        kind = search.get(config.search.strategy)
        make_options(kind.Options, config.search.options, config.search.strategy)
        schedulers.get(config.search.scheduler)
    with blamed(f"{where}:cost_model"):
        model = make_model(config.cost_model.name, config.cost_model.options, config.seed)
        check_exploration(model, config.cost_model.exploration)
    with blamed(f"{where}:cost_model.transfer"):
        transfer = transfer_of(config)
    return Settings(
        target=target,
        trials=config.trials,
        seed=config.seed,
        batch=config.search.batch,
        finalists=config.search.finalists,
        strategy=config.search.strategy,
        strategy_options=config.search.options,
        cost_model=config.cost_model.name,
        cost_model_options=config.cost_model.options,
        features=config.cost_model.features,
        transfer=transfer,
        exploration=config.cost_model.exploration,
        threads=config.measure.threads or hardware.cores,
        cache=config.measure.cache,
        build_timeout=config.measure.build_timeout_s,
        run_timeout=config.measure.timeout_s,
    )


def space_of(task: Task, config: RunConfig, settings: Settings, where: str) -> SearchSpace | None:
    """The search space of the template that a configuration names; None where sketch rules make it.

    Raises:
        ConfigError: no such template, or one that does not schedule this workload on this target.
    """
    if config.search.template is None:
        return None
    with blamed(f"{where}:search.template"):
        if config.search.algorithms is not None:
            raise ValueError(
                "`template` must stand without `algorithms`, as it chooses itself, but got "
                f"algorithms={config.search.algorithms}"
            )
        hardware = targets.get(settings.of(task).target).hardware
        return templates.get(config.search.template)(task.workload).space(hardware)


def transfer_of(config: RunConfig) -> Options | None:
    """What the searches of a run are told of other tasks.

    Raises:
        ValueError: an unknown method, model, alignment or similarity.
    """
    given = config.cost_model.transfer
    if given is None:
        return None
    make_model(given.model, given.model_options, config.seed)
    fields = given.model_dump()
    return Options(method_options=fields.pop("options"), **fields)


def workload_of(config: WorkloadConfig) -> Workload:
    """The workload that a configuration describes.

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
        return workloads.own(operator, **config.arguments)
    found = Workload.from_json({"operator": operator.name, "args": config.arguments})
    found.check_size()
    return found


@contextmanager
def blamed(where: str) -> Iterator[None]:
    """Turns a refusal of values into a ConfigError that says where the values stand."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{where}: {error}") from error
