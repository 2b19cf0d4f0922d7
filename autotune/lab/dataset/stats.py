"""Statistics of a dataset and its tasks."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from costmodel.dataset.dataset import Dataset, TaskData
from measure.errors import ErrorClass


@dataclass(frozen=True)
class TaskStats:
    """Figures of one task.

    Attributes:
        key, name, target: key, name and target of the task.
        machine: processor and cores that it was measured on; empty for a simulated target.
        networks: names of those that it occurs in.
        sketches: distinct schedules of the programs, besides their decisions.
        programs: measured, failures included.
        valid: programs that ran and gave the right output.
        random: valid programs that were drawn at random.
        errors: class of failure -> programs.
        best: seconds of the fastest; NaN where nothing is valid.
        median: seconds of the middle one; NaN likewise.
        gflops: 1e9 operations a second of the fastest; NaN likewise.
    """

    key: str
    name: str
    target: str
    machine: str
    networks: tuple[str, ...]
    sketches: int
    programs: int
    valid: int
    random: int
    errors: dict[str, int]
    best: float
    median: float
    gflops: float


def stats(data: Dataset) -> list[TaskStats]:
    """Computes figures of every task, in order."""
    return [_compute_stats(data, task) for task in data.tasks]


def to_json(figures: list[TaskStats]) -> dict[str, Any]:
    """Converts figures to plain data, NaN to null."""
    rows = [{name: None if value != value else value for name, value in asdict(one).items()} for one in figures]
    return {"tasks": rows, "programs": sum(s.programs for s in figures), "valid": sum(s.valid for s in figures)}


def _compute_stats(data: Dataset, task: TaskData) -> TaskStats:
    seconds, errors = data.seconds(task), data.errors(task)
    valid = np.isfinite(seconds)
    best, median = (float(np.nanmin(seconds)), float(np.nanmedian(seconds))) if valid.any() else (np.nan, np.nan)
    failures = Counter(str(error) for error in errors if error != ErrorClass.ok)
    return TaskStats(
        task.key,
        task.name,
        task.target,
        task.machine,
        tuple(sorted(task.networks)),
        len({program.sketch for program in data.programs(task)}),
        len(seconds),
        int(valid.sum()),
        int((valid & (data.origin(task) == "random")).sum()),
        dict(sorted(failures.items())),
        best,
        median,
        task.workload.flops / best * 1e-9,
    )
