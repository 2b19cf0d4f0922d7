"""Programs of a dataset as models learn them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodel.dataset import Dataset
from costmodel.dataset.split import Part


class Samples(NamedTuple):
    """Arguments of `CostModel.fit_tasks`.

    Attributes:
        features: of each program, float32 (statements, features).
        throughput: (programs,) best seconds of the task among these programs / seconds; 0 for a failure.
        groups: (programs,) place of its task among the parts.
    """

    features: list[NDArray[np.float32]]
    throughput: NDArray[np.float64]
    groups: NDArray[np.int64]


def samples(data: Dataset, parts: Sequence[Part], progress: Callable[[str], None] = lambda text: None) -> Samples:
    """Collects the programs of some parts of a dataset, in order; tasks without a valid program are left out.

    Args:
        data: measured programs.
        parts: of the data.
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
        found: list[NDArray[np.float32]] = [np.empty(0, np.float32)] * data.count(task)
        for block in data.features(task):
            for row, of in zip(block.rows.tolist(), block.features, strict=True):
                found[row] = of
        features += [found[row] for row in rows.tolist()]
        throughput.append(relative(seconds))
        groups.append(np.full(len(rows), number))
    if not features:
        return Samples([], np.empty(0), np.empty(0, np.int64))
    return Samples(features, np.concatenate(throughput), np.concatenate(groups))


def relative(seconds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Best seconds / seconds, 0 for a failure; at least one must be finite."""
    return np.nan_to_num(np.nanmin(seconds) / seconds, nan=0.0)
