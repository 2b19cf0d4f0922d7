"""Tasks of a collection, each once: from networks, random programs and lists of operators."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from autotune.config import Collect, ConfigError, RunConfig, SourceConfig, errors_at
from autotune.lab.collect.random_programs import random_workload
from autotune.run.workloads import import_network, make_workload
from autotune.tuner.task import Task
from search_space.operators.checks import nearest
from search_space.workloads import Workload


@dataclass(frozen=True)
class Item:
    """A task to collect programs of.

    Attributes:
        name: readable, unique.
        workload: computation of the task.
        programs: number of programs to measure.
        networks: network -> how often the task occurs in it.
        rounds: bursts of each program, timed again, interleaved; 0: none.
    """

    name: str
    workload: Workload
    programs: int
    networks: dict[str, int] = field(default_factory=dict)
    rounds: int = 0


def list_items(config: RunConfig) -> list[Item]:
    """Lists the items of a collection; a task of several sources is one item, with the most programs and rounds.

    Raises:
        ConfigError: an unknown network, task or operator, or sizes that do not go together.
    """
    collect = collect_section(config)
    items: dict[str, Item] = {}
    for number, source in enumerate(collect.sources):
        programs = source.programs or collect.programs
        rounds = collect.rounds if source.rounds is None else source.rounds
        for item in _items(source, config, programs, f"collect.sources.{number}", number):
            item = replace(item, rounds=rounds)
            known = items.get(item.workload.key)
            if known is not None:
                most, networks = max(known.programs, item.programs), {**known.networks, **item.networks}
                item = replace(known, programs=most, networks=networks, rounds=max(known.rounds, rounds))
            items[item.workload.key] = item
    return _named_apart(list(items.values()))


def collect_section(config: RunConfig) -> Collect:
    """Returns the section `collect` of a configuration.

    Raises:
        ConfigError: there is no such section.
    """
    if config.collect is None:
        raise ConfigError("a configuration to collect from must have `collect`, but got none", "")
    return config.collect


def _items(source: SourceConfig, config: RunConfig, programs: int, at: str, number: int) -> list[Item]:
    if source.network is not None:
        name = re.sub(r"[^\w.-]", "_", source.network.rsplit("/", 1)[-1].removesuffix(".onnx"))
        tasks = _choose_tasks(_network_tasks(source, config, name, at), source, at)
        return [Item(task.name, task.workload, programs, {name: task.weight}) for task in tasks]
    if source.workload is not None:
        with errors_at(f"{at}.workload"):
            workload = make_workload(source.workload)
        return [Item(_shape_name(workload), workload, programs)]
    rng = np.random.default_rng([config.seed, number])
    made = [random_workload(rng) for _ in range(source.random_programs or 0)]
    return [Item(f"random_{_shape_name(workload)}", workload, programs) for workload in made]


def _network_tasks(source: SourceConfig, config: RunConfig, name: str, at: str) -> list[Task]:
    """Lists tasks of a network that the target of the collection computes."""
    as_run = config.model_copy(update={"model": source.network, "collect": None, "name": name})
    network = import_network(as_run, f"{at}:model")
    tasks = [task for task in network.tasks if network.device is None or task.target == network.device]
    if not tasks:
        raise ConfigError(f"a network must have layers for {config.target}, but {name} has none", f"{at}.network")
    return tasks


def _choose_tasks(tasks: Sequence[Task], source: SourceConfig, at: str) -> list[Task]:
    """Selects the tasks that the source names or allows, evenly spread where it wants fewer."""
    names = [task.name for task in tasks]
    for name in source.only or ():
        if name not in names:
            raise ConfigError(f"a task must be of the network, but got {name!r}{nearest(name, names)}", f"{at}.only")
    least, most = source.least_mflop or 0.0, source.most_mflop or float("inf")
    left = [
        task
        for task in tasks
        if (source.only is None or task.name in source.only) and least <= task.workload.flops * 1e-6 <= most
    ]
    if source.tasks is None or source.tasks >= len(left):
        return left
    return [left[len(left) * place // source.tasks] for place in range(source.tasks)]


def _shape_name(workload: Workload) -> str:
    """Formats operator and shapes of inputs and output."""
    shapes = ["x".join(map(str, spec.shape)) for spec in (*workload.inputs[:2], workload.output)]
    return "_".join([workload.anchor.operator, *shapes])


def _named_apart(items: Sequence[Item]) -> list[Item]:
    names: dict[str, int] = {}
    apart = []
    for item in items:
        names[item.name] = count = names.get(item.name, 0) + 1
        apart.append(item if count == 1 else replace(item, name=f"{item.name}_{count}"))
    return apart
