"""Pools made of the small dataset that is kept for tests, as though each program had been collected twice."""

from __future__ import annotations

import dataclasses

import numpy as np

from autotune.lab.protocol import Pools, PoolTask, Registration
from costmodel.dataset import Dataset
from costmodel.dataset.dataset import TaskMeasurements
from tests.costmodel.fixture import open_fixture

ROLES = ("train", "train", "validation", "test", "train", "test")
NOISE = 0.02


def registration(rounds: int = 2) -> Registration:
    """Registers the six tasks: three to learn from, one to validate with, two to test with, collected twice."""
    tasks = []
    for number, (task, role) in enumerate(zip(open_fixture().tasks, ROLES, strict=True)):
        network = {"train": "one", "validation": "two", "test": "three"}[role]
        pool = PoolTask(f"{number}_{task.name}", task.workload, role, 64, 2 if role == "test" else 1)
        tasks.append(dataclasses.replace(pool, networks={network: number + 1}))
    return Registration(tuple(tasks), rounds)


def make_dataset(protocol: Registration) -> Dataset:
    """The random programs of the dataset, with bursts that scatter."""
    data, rng, found = open_fixture(), np.random.default_rng(0), {}
    for task in data.tasks:
        of, bursts = data.copy_measurements(task), protocol.rounds * protocol.by_workload[task.workload.key].collections
        programs = [
            dataclasses.replace(p, latencies=(p.latencies[:1] * (1 + NOISE * rng.random(bursts))).astype(np.float32))
            if p.ok
            else p
            for p in of.programs
            if p.origin == "random"
        ]
        found[task] = TaskMeasurements(of.sketches, programs)
    return Dataset(found)


def pools() -> Pools:
    """All of it, opened to test with too."""
    registered = registration()
    return Pools.of(registered, make_dataset(registered))
