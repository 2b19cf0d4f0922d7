"""What a configuration is about: its tasks and how to tune them, checked before anything runs."""

from __future__ import annotations

from autotune import schedulers, search
from autotune.config import Model, RunConfig, Search, errors_at
from autotune.run.workloads import family_of, network_of, target_of, workload_of
from autotune.search.base import make_options
from autotune.tuning.settings import Settings, check_exploration, make_model
from autotune.tuning.task import Task
from costmodel.models import registry as models


def tasks_of(config: RunConfig) -> list[Task]:
    """Tasks of a run, or of a collection.

    Raises:
        ConfigError: an unknown operator or model, or sizes that do not go together.
    """
    if config.collect is not None:
        from autotune.collect.items import items_of

        return [Task(item.name, item.workload, sum(item.networks.values()) or 1) for item in items_of(config)]
    if config.workload is None:
        return list(network_of(config).tasks)
    if config.sizes is not None:
        family = family_of(config)
        return [Task(f"{family.argument}{n}", family.workload(n)) for n in config.sizes.at]
    with errors_at("workload"):
        return [Task(config.name, workload_of(config.workload))]


def settings_of(config: RunConfig) -> Settings:
    """How the tasks of a run are tuned; those of an accelerator name it themselves, see `Settings.of`.

    Raises:
        ConfigError: an unknown target, strategy or model, or an option that they do not have.
    """
    how, model, seed = config.search, config.cost_model, config.seed
    with errors_at("target"):
        target = target_of(config)
    if how != Search():  # what is not asked for is right, and need not be imported to compile
        with errors_at("search"):
            make_options(search.get(how.strategy).Options, how.options, search.name_of(how.strategy))
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
