"""Workloads and settings that a configuration names: an operator with its sizes, or a network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autotune.compiler.job import NetworkJob, get_target
from autotune.config import ConfigError, Model, RunConfig, Search, WorkloadConfig, errors_at
from autotune.extensions import extensions
from autotune.tuner import schedulers, search
from autotune.tuner.search.base import make_options
from autotune.tuner.settings import Settings, check_exploration, make_model
from autotune.tuner.sizes.family import Family
from autotune.tuner.task import Task
from costmodel.models import registry as models
from search_space import workloads
from search_space.operators import LIBRARY, resolve_operator
from search_space.operators.checks import nearest
from search_space.workloads import Workload

if TYPE_CHECKING:
    from autotune.compiler.prepare import Network
    from autotune.compiler.selection import Limits


def make_job(config: RunConfig) -> NetworkJob:
    """Translates a configuration to the job of making its model's executable.

    Raises:
        ConfigError: see `make_settings`.
    """
    known = {name: make for extension in extensions() for name, make in extension.substitutions().items()}
    return NetworkJob(config, make_settings(config), config.records_path, known)


def import_network(config: RunConfig, at: str = "model") -> Network:
    """Imports the model of a configuration; see `NetworkJob.load`."""
    return make_job(config).load(at)


def make_limits(config: RunConfig) -> Limits:
    """Reads the limits of the algorithms of a configuration's model."""
    return make_job(config).limits


def tasks_of_any(config: RunConfig) -> list[Task]:
    """Lists the tasks of a run, or those that an extension runs.

    Raises:
        ConfigError: an unknown operator or model, or sizes that do not go together.
    """
    listed = (extension.list_tasks(config) for extension in extensions())
    return next((tasks for tasks in listed if tasks is not None), None) or list_tasks(config)


def list_tasks(config: RunConfig) -> list[Task]:
    """Makes the tasks of a run.

    Raises:
        ConfigError: an unknown operator or model, sizes that do not go together, or a collection.
    """
    if config.collect is not None:
        raise ConfigError("must be left out beside a `model` or `workload` to tune, but it is given", "collect")
    if config.workload is None:
        return list(import_network(config).tasks)
    if config.sizes is not None:
        family = make_family(config)
        return [Task(f"{family.argument}{n}", family.workload(n)) for n in config.sizes.at]
    with errors_at("workload"):
        return [Task(config.name, make_workload(config.workload))]


def make_family(config: RunConfig) -> Family:
    """Makes the workloads of a configuration with open sizes, and tries each size.

    Raises:
        ConfigError: an argument that there is not, or sizes for which the operator is not defined.
    """
    assert config.workload is not None and config.sizes is not None
    with errors_at("workload"):
        operator = resolve_operator(config.workload.operator)
        if operator.name not in LIBRARY:
            raise ValueError(
                f"`operator` must be one of the library beside `sizes`, but got {config.workload.operator}"
            )
    with errors_at("sizes.argument"):
        family = Family(operator.name, config.sizes.argument, config.workload.arguments)
    with errors_at("workload"):
        for n in config.sizes.at:
            make_workload(config.workload.model_copy(update={config.sizes.argument: n}))
    return family


def make_workload(config: WorkloadConfig) -> Workload:
    """Makes the workload of a configuration, and tries its sizes.

    Raises:
        ValueError: states the rule and the value.
    """
    operator = resolve_operator(config.operator)
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
        workload = workloads.own(operator, **config.arguments)
    else:
        workload = Workload.from_json({"operator": operator.name, "args": config.arguments})
        workload.check_size()
    workload.tensors(workload.algorithms[0])  # states what is wrong with impossible sizes
    return workload


def make_settings(config: RunConfig) -> Settings:
    """Translates a configuration to the settings of its tasks; for those of an accelerator see `Settings.of`.

    Raises:
        ConfigError: an unknown target, strategy or model, or an option that they do not have.
    """
    how, model, seed = config.search, config.cost_model, config.seed
    with errors_at("target"):
        target = get_target(config)
    if how != Search():  # what is not asked for is right, and need not be imported to compile
        with errors_at("search"):
            make_options(search.get(how.strategy).Options, how.options, search.strategy_name(how.strategy))
            schedulers.get(how.scheduler)
    if model != Model():
        with errors_at("cost_model"):
            check_exploration(make_model(model, seed), model.exploration)
    with errors_at("cost_model.transfer"):
        if model.transfer is not None:
            from costmodel.transfer import Options

            models.make(model.transfer.model, model.transfer.model_options, seed)
            Options(**dict(model.transfer))
    return Settings(target, config.trials, seed, how, model, config.measure, tuple(config.network.algorithms))
