"""Training of a pretrained model: trees for the roofline's errors, from the programs of any number of datasets."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from autotune.lab.evaluate.samples import Samples, samples
from autotune.lab.protocol import Pools
from costmodel.dataset import SHIPPED_DATASET, Dataset
from costmodel.dataset.split import working
from costmodel.models.errors import CostModelError
from costmodel.models.lightgbm_residual import ResidualModel
from costmodel.pretrained import SHIPPED_FILE

THREADS = SHIPPED_FILE.parent / "measured" / "threads"
"""Programs of the pools' tasks on two threads, see configs/collect_threads.yaml.

One thread does not show the costs of sharing a loop.
"""


def shipped_sources() -> list[Dataset]:
    """Opens the training data of the shipped model: CPUs of two makers, without layers of the test networks."""
    pools, others = Pools.open(), Dataset.open(SHIPPED_DATASET)
    held = {task.workload.key for task in pools.registration.tasks if task.role == "test"}
    kept = (task for task in others.tasks if task.hardware.kind == "cpu" and task.workload.key not in held)
    return [pools.training, Dataset.open(THREADS), others.select(kept)]


def learn(
    sources: Sequence[Dataset], seed: int = 0, progress: Callable[[str], None] = lambda text: None
) -> ResidualModel:
    """Trains a model on the programs of all tasks that have several working ones.

    Args:
        sources: datasets; a task of each is a task of its own, for times of two machines do not compare.
        seed: seed of the sampling of features.
        progress: called with a sentence about the next step.

    Raises:
        CostModelError: there is nothing to learn from.
    """
    parts: list[Samples] = []
    for number, data in enumerate(sources, 1):
        progress(f"features of {len(data)} programs of {len(data.tasks)} tasks, source {number} of {len(sources)}")
        parts.append(samples(data, [part for part in working(data) if len(part.rows) > 1]))
    ends = np.cumsum([0, *(of.groups.max(initial=-1) + 1 for of in parts)])
    features = [row for of in parts for row in of.features]
    if not features:
        raise CostModelError("a model must have measured programs to learn from, but got none")
    progress(f"learning from {len(features)} programs")
    model = ResidualModel(seed)
    model.fit_tasks(
        features,
        np.concatenate([of.throughput for of in parts]),
        np.concatenate([of.groups + first for of, first in zip(parts, ends[:-1].tolist(), strict=True)]),
    )
    return model
