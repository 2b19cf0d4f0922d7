"""Learning the pretrained model anew, and its scores on registered pools."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from autotune.lab.learn_pretrained import learn, shipped_sources
from autotune.lab.protocol import Pools
from costmodel.dataset import Dataset
from costmodel.features import NAMES
from costmodel.models.errors import CostModelError

ROWS = np.random.default_rng(0).uniform(0, 8, (300, 2, len(NAMES))).astype(np.float32)


def test_learning_takes_every_task_of_every_source_apart() -> None:
    small = Dataset.open(Path("tests/datasets/vta"))
    said: list[str] = []
    once, twice = learn([small], 3), learn([small, small], 3, said.append)
    assert len(said) == 3 and said[-1] == f"learning from {2 * sum(_working(small))} programs"
    task = small.tasks[0]
    (block, *_) = small.features(task)
    assert np.corrcoef(once.predict(block.features), twice.predict(block.features))[0, 1] > 0.9
    with pytest.raises(CostModelError, match="must have measured programs to learn from"):
        learn([])


def test_no_network_to_test_with_is_learned_from() -> None:
    registered = Pools.open().registration
    held = {task.workload.key for task in registered.tasks if task.role == "test"}
    known = {task.workload.key for data in shipped_sources() for task in data.tasks}
    assert len(held) > 40 and not held & known


def _working(data: Dataset) -> list[int]:
    counts = [int(np.isfinite(data.seconds(task)).sum()) for task in data.tasks]
    return [count for count in counts if count > 1]
