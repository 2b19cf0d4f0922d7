"""Similarity of measured tasks to a new one: by operator, by sizes, by the programs of their spaces."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from costmodel.transfer.errors import TransferError
from costmodel.transfer.tasks import SourceTask, Task
from search_space.ir.expr import dtype_bytes

QUANTILES = (0.1, 0.5, 0.9)
"""Quantiles of each feature over a task's random programs, by which spaces are compared."""

Distances = NDArray[np.float64]  # (source tasks,)


def distances(source: Sequence[SourceTask], task: Task, by: str = "all") -> Distances:
    """Computes the distance of each source task to a task, 0 for equal ones; the mean is 1 if any differs.

    Args:
        source: tasks to choose from.
        task: new task.
        by: name in `MEASURES`, or `all`: the mean over them.

    Raises:
        TransferError: `by` is unknown.
    """
    found: Distances = np.mean([_scale_to_mean(MEASURES[name](source, task)) for name in measure_names(by)], axis=0)
    return found


def described_distances(source: Sequence[SourceTask], task: Task) -> Distances:
    """Computes distances from the tasks' computations alone, which needs no program's features."""
    found: Distances = np.mean([_scale_to_mean(MEASURES[name](source, task)) for name in ("operator", "sizes")], axis=0)
    return found


def measure_names(by: str) -> tuple[str, ...]:
    """Lists the measures that are averaged.

    Raises:
        TransferError: `by` is unknown.
    """
    if by != "all" and by not in MEASURES:
        raise TransferError(f"`similarity` must be one of all, {', '.join(MEASURES)}, but got similarity={by!r}")
    return tuple(MEASURES) if by == "all" else (by,)


def weights(distances: Distances) -> NDArray[np.float64]:
    """Computes each source task's weight, exp(-distance**2), 0.37 at the mean distance, scaled to a maximum of 1."""
    weights: NDArray[np.float64] = np.exp(distances.min(initial=np.inf) ** 2 - distances**2)
    return weights


def nearest(distances: Distances, count: int) -> NDArray[np.int64]:
    """Returns the indices of the `count` nearest source tasks, ascending; of equal ones the earlier first."""
    return np.sort(np.argsort(distances, kind="stable")[:count])


def _operators(source: Sequence[SourceTask], task: Task) -> Distances:
    """Computes distance 0 for the same operator, else 1."""
    operator = task.workload.anchor.operator
    return np.array([of.workload.anchor.operator != operator for of in source], np.float64)


def _sizes(source: Sequence[SourceTask], task: Task) -> Distances:
    """Computes mean differences of the logarithms of operations, bytes of each kind, and operations per byte."""
    own = _amounts(task)
    return np.array([np.abs(_amounts(of) - own).mean() for of in source])


def _amounts(task: Task) -> NDArray[np.float64]:
    workload = task.workload
    nbytes = [
        (float(np.prod(spec.shape, dtype=np.float64)) * dtype_bytes(spec.dtype), spec.constant)
        for spec in workload.inputs
    ]
    activations = sum(size for size, constant in nbytes if not constant)
    constants = sum(size for size, constant in nbytes if constant)
    output = float(np.prod(workload.output.shape, dtype=np.float64)) * dtype_bytes(workload.output.dtype)
    intensity = workload.flops / max(1.0, activations + constants + output)
    return np.log2(1.0 + np.array([workload.flops, activations, constants, output, intensity], np.float64))


def _programs(source: Sequence[SourceTask], task: Task) -> Distances:
    """Computes mean differences of the features' quantiles, each in units of its spread over the source tasks."""
    own = _quantiles(task)
    others = np.array([_quantiles(of) for of in source])
    spread = others.std(axis=0)
    varies = spread > 1e-6
    if not varies.any():
        return np.zeros(len(source))
    found: Distances = np.abs((others - own)[:, varies] / spread[varies]).mean(axis=1)
    return found


def _quantiles(task: Task) -> NDArray[np.float64]:
    rows = task.sample_rows
    if not len(rows):
        return np.zeros(len(QUANTILES) * rows.shape[1])
    return np.quantile(rows.astype(np.float64), QUANTILES, axis=0).ravel()


def _scale_to_mean(distances: Distances) -> Distances:
    mean = distances.mean() if len(distances) else 0.0
    return distances / mean if mean > 0 else distances


MEASURES: dict[str, Callable[[Sequence[SourceTask], Task], Distances]] = {
    "operator": _operators,
    "sizes": _sizes,
    "programs": _programs,
}
"""Name -> distances of the source tasks to a task, in any unit."""
