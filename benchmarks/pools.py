"""Registration of the shipped dataset's pools: `python -m benchmarks.pools FILE --exports FOLDER`.

Run once, before anything is measured; `autotune collect configs/collect_pools.yaml` measures the registered programs.
Networks of torchvision and timm are exported as the survey does (`pip install '.[bench,survey]'`), weights play no
part.

The choice depends on shapes alone:

- Networks to validate and to test are whole. Layers that differ only by the fused operators after them count as one,
  the most frequent of them. The smallest layers, at most `SMALL` of the network's estimated time together, are left
  out.
- Training networks contribute so many layers, spread evenly over the network. No layer has the anchor of a validation
  or test layer.
- Random programs are drawn from a seed.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from autotune.config import RunConfig
from autotune.lab.collect.random_programs import random_workload
from autotune.lab.protocol import ROLES, PoolTask, Registration, Role
from autotune.naming import file_name
from autotune.run.workloads import import_network
from autotune.tuner.task import Task
from benchmarks.survey.export_cache import ExportCache
from benchmarks.survey.exports import EXPORTERS
from benchmarks.survey.models import MODELS_FILE, load_models
from search_space.workloads import Workload

NETWORKS: dict[str, Role] = {
    "resnetv2_50": "test",
    "mobilenet_v3_large": "test",
    "vit_small_patch16_224": "test",
    "resnet18": "validation",
    "mobilenet_v2": "validation",
    "squeezenet": "train",
    "inception_v1": "train",
    "inception_v2": "train",
    "densenet121": "train",
    "shufflenet": "train",
    "alexnet": "train",
    "bert_base": "train",
    "efficientnet_b0": "train",
    "regnet_y_800mf": "train",
}
"""Roles of the layers of each network. Test networks were in no dataset before."""
EXPORTED_MODELS = ("resnetv2_50", "mobilenet_v3_large", "vit_small_patch16_224", "efficientnet_b0", "regnet_y_800mf")
"""Networks that come from a library; the others are those of the package."""
LAYERS = 5
"""Layers of each network to learn from."""
PROGRAMS: dict[Role, int] = {"train": 1000, "validation": 500, "test": 500}
COLLECTIONS: dict[Role, int] = {"train": 1, "validation": 1, "test": 2}
RANDOM = 30
"""Random programs of any kind."""
RANDOM_PROGRAMS = 250
"""Schedules drawn for each random program."""
MORE = {"depthwise": 20, "one_row": 6, "rows": 4, "pooling": 4}
"""Random programs of kinds that the layers to learn from have few of, which showed in validation."""
ROUNDS = 8
"""Bursts of each schedule in a collection."""
SMALL = 0.02
"""Most of the estimated time of a network that its left-out layers take together, as a share."""
FLOPS, BYTES = 1e11, 1e10
"""A second of some processor: what is left out may not depend on the one at hand."""


def anchor_key(workload: Workload) -> str:
    """Returns a layer's anchor: its computation less the operators fused around it."""
    return json.dumps(workload.anchor.to_json(), sort_keys=True)


def estimate_seconds(workload: Workload) -> float:
    """Estimates seconds roughly, by operations and bytes."""
    arrays = (*workload.inputs, workload.output)
    return workload.flops / FLOPS + sum(4 * math.prod(spec.shape) for spec in arrays) / BYTES


def group_layers(tasks: Sequence[Task]) -> list[tuple[Task, int]]:
    """Lists layers of a network that count, each with the number of its and similar layers' occurrences."""
    groups: dict[str, list[Task]] = {}
    for task in tasks:
        groups.setdefault(anchor_key(task.workload), []).append(task)
    layers = [
        (max(group, key=lambda task: task.weight), sum(task.weight for task in group)) for group in groups.values()
    ]
    shares = np.array([estimate_seconds(task.workload) * times for task, times in layers])
    order = np.argsort(shares, kind="stable")
    small = set(order[np.cumsum(shares[order]) <= SMALL * shares.sum()].tolist())
    return [layer for place, layer in enumerate(layers) if place not in small]


def spread(tasks: Sequence[Task], used_anchors: set[str], layers: int) -> list[tuple[Task, int]]:
    """Selects so many layers of a network, none of which has an anchor in `used_anchors`, and adds their anchors to
    it."""
    left = [
        task
        for task in tasks
        if anchor_key(task.workload) not in used_anchors and estimate_seconds(task.workload) > 2e-5
    ]
    chosen = [left[len(left) * place // layers] for place in range(layers)] if len(left) > layers else left
    apart = {anchor_key(task.workload): task for task in chosen}
    used_anchors.update(apart)
    return [(task, task.weight) for task in apart.values()]


def list_tasks(name: str, exports: Path) -> Sequence[Task]:
    """Lists layers of a network by name: of the package, or of a library by way of ONNX."""
    model = name
    if name in EXPORTED_MODELS:
        listed = next(one for one in load_models(MODELS_FILE) if one.name == name)
        file = ExportCache(exports, listed, 0, EXPORTERS).file
        if not file.exists():
            command = ["-m", "benchmarks.survey", "--exports", str(exports), "--export-only", "--only", name]
            subprocess.run([sys.executable, *command], check=True)
        model = str(file)
    cache = {"cache": "network"}
    return import_network(
        RunConfig.model_validate({"name": name, "model": model, "target": "cpu", "measure": cache})
    ).tasks


def register(exports: Path, seed: int = 0) -> Registration:
    """Registers the pools: roles in turns, so that an interrupted collection has some of each."""
    tasks_by_network = {name: list_tasks(name, exports) for name in NETWORKS}
    pools: dict[str, PoolTask] = {}
    anchors: set[str] = set()
    for name, role in NETWORKS.items():  # a layer that is tested with is nothing else
        if role == "train":
            layers = spread(tasks_by_network[name], anchors, LAYERS)
        else:
            layers = group_layers(tasks_by_network[name])
            anchors.update(anchor_key(task.workload) for task in tasks_by_network[name])
        for task, times in layers:
            key = task.workload.key
            pool = pools.setdefault(key, PoolTask(task.name, task.workload, role, PROGRAMS[role], COLLECTIONS[role]))
            if pool.role == role:
                pools[key] = replace(pool, networks={**pool.networks, name: times})
    rng = np.random.default_rng(seed)
    for number in range(RANDOM):
        workload = random_workload(rng)
        name = file_name(f"random_{number}_{workload.operator}")
        pools.setdefault(workload.key, PoolTask(name, workload, "train", RANDOM_PROGRAMS))
    rng = np.random.default_rng([seed, 1])
    for kind, count in MORE.items():
        for number in range(count):
            workload = random_workload(rng, kind)
            if anchor_key(workload) not in anchors:
                name = file_name(f"random_{kind}_{number}")
                pools.setdefault(workload.key, PoolTask(name, workload, "train", RANDOM_PROGRAMS))
    by_role = [[pool for pool in pools.values() if pool.role == role] for role in ROLES]
    names: dict[str, int] = {}
    apart = []
    for pool in _in_turns(by_role):
        names[pool.name] = count = names.get(pool.name, 0) + 1
        apart.append(pool if count == 1 else replace(pool, name=f"{pool.name}_{count}"))
    return Registration(tuple(apart), ROUNDS)


def _in_turns(lists: Sequence[Sequence[PoolTask]]) -> list[PoolTask]:
    """Merges several lists, each spread evenly over the result."""
    placed = [(place / len(of), number, task) for number, of in enumerate(lists) for place, task in enumerate(of)]
    return [task for _, _, task in sorted(placed, key=lambda item: item[:2])]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pools", description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--exports", type=Path, required=True, help="folder of exported models, see benchmarks.survey")
    options = parser.parse_args(arguments)
    if options.file.exists():
        sys.stderr.write(f"`file` must be new, for pools are registered once, but {options.file} exists\n")
        return 2
    registered = register(options.exports)
    registered.write(options.file)
    for role in ROLES:
        of = [task for task in registered.tasks if task.role == role]
        sys.stdout.write(f"{role}: {len(of)} tasks, {sum(task.programs * task.collections for task in of)} timings\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
