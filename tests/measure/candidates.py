"""Trials of real workloads with random schedules."""

from __future__ import annotations

from typing import Any

import numpy as np

from measure.pool import Trial
from search_space.space import generate
from search_space.workloads import Workload
from targets import registry


def candidates(workload: Workload, count: int, target: str = "cpu", seed: int = 0, **options: Any) -> list[Trial]:
    """Trials of random legal schedules, of random sketches.

    Args:
        workload: workload to compute.
        count: number of trials.
        target: name, as `targets.registry.get` takes it.
        seed: seed of the draws.
        options: further fields of the trials.
    """
    rng = np.random.default_rng(seed)
    sketches = generate(workload, registry.get(target).hardware).sketches
    trials: list[Trial] = []
    while len(trials) < count:
        sketch = sketches[rng.integers(len(sketches))]
        rows = np.array([rng.integers(len(group.table), size=500) for group in sketch.groups], np.int32)
        rows = rows.T.reshape(500, len(sketch.groups))
        for row in rows[sketch.legal(rows)][:1]:
            trials.append(Trial.of(workload, sketch.algorithm, sketch.trace(row), target=target, **options))
    return trials
