"""Programs of a dataset as models learn them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodel.dataset import Dataset
from costmodel.dataset.split import TaskPrograms
from costmodel.metrics import relative
from costmodel.models import registry
from costmodel.models.base import CostModel
from costmodel.models.errors import CostModelError


class Samples(NamedTuple):
    """Arguments of `CostModel.fit_tasks`.

    Attributes:
        features: float32 (statements, features) of each program.
        throughput: (programs,) best seconds of the task among these programs / seconds; 0 for a failure.
        groups: (programs,) index of its task among the parts.
    """

    features: list[NDArray[np.float32]]
    throughput: NDArray[np.float64]
    groups: NDArray[np.int64]


def samples(
    data: Dataset, parts: Sequence[TaskPrograms], progress: Callable[[str], None] = lambda text: None
) -> Samples:
    """Collects the programs of some parts of a dataset, in order; tasks without a valid program are left out.

    Args:
        data: measured programs.
        parts: parts of the dataset.
        progress: called with a sentence for each part, whose features may take a second.
    """
    features: list[NDArray[np.float32]] = []
    throughput: list[NDArray[np.float64]] = []
    groups: list[NDArray[np.int64]] = []
    for number, (task, rows) in enumerate(parts):
        progress(f"computing features: task {number + 1} of {len(parts)}")
        seconds = data.seconds(task)[rows]
        if not np.isfinite(seconds).any():
            continue
        of_row = {
            row: of
            for block in data.features(task)
            for row, of in zip(block.rows.tolist(), block.features, strict=True)
        }
        features += [of_row[row] for row in rows.tolist()]
        throughput.append(relative(seconds))
        groups.append(np.full(len(rows), number))
    if not features:
        return Samples([], np.empty(0), np.empty(0, np.int64))
    return Samples(features, np.concatenate(throughput), np.concatenate(groups))


def fit_model(name: str, options: Mapping[str, Any], seed: int, of: Samples) -> CostModel:
    """Trains a model on some samples.

    Raises:
        CostModelError: no such model or option, or no sample.
    """
    return timed_fit(name, options, seed, of)[0]


def timed_fit(name: str, options: Mapping[str, Any], seed: int, of: Samples) -> tuple[CostModel, float]:
    """Trains a model on some samples, see `fit_model`; returns it and the seconds that training took."""
    if not of.features:
        raise CostModelError("a model must have measured programs to learn from, but got none")
    start = time.perf_counter()
    model = registry.make(name, options, seed)
    model.fit_tasks(of.features, of.throughput, of.groups)
    return model, time.perf_counter() - start
