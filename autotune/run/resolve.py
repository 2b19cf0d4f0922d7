"""What a configuration is about: its tasks and how to tune them, checked before anything runs."""

from __future__ import annotations

from autotune.config import ConfigError, RunConfig, errors_at
from autotune.run.workloads import family_of, network_of, workload_of
from autotune.tuning.task import Task


def tasks_of(config: RunConfig) -> list[Task]:
    """Tasks of a run.

    Raises:
        ConfigError: an unknown operator or model, sizes that do not go together, or a collection.
    """
    if config.collect is not None:
        raise ConfigError("must be left out beside a `model` or `workload` to tune, but it is given", "collect")
    if config.workload is None:
        return list(network_of(config).tasks)
    if config.sizes is not None:
        family = family_of(config)
        return [Task(f"{family.argument}{n}", family.workload(n)) for n in config.sizes.at]
    with errors_at("workload"):
        return [Task(config.name, workload_of(config.workload))]
