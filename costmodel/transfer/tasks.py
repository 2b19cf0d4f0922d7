"""Tasks for transfer: workload, hardware, and features of programs, measured or only drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from costmodel.dataset import Dataset, TaskData
from costmodel.features import NAMES
from search_space.hardware import Hardware
from search_space.workloads import Workload

Features = NDArray[np.float32]  # (statements, features) of one program
LEAST_DRAWN = 16
"""Number of random programs of a task below which all of its programs represent its space."""


@dataclass(frozen=True, eq=False)
class TargetTask:
    """A task to be searched.

    Attributes:
        workload: workload that is computed.
        hardware: limits of the machine.
        sample: features of programs drawn at random from its space, measured or not.
    """

    workload: Workload
    hardware: Hardware
    sample: Sequence[Features]

    @cached_property
    def sample_rows(self) -> Features:
        """Statements of the sample: (rows, features)."""
        return concatenate_rows(self.sample)


class SourceTask:
    """A measured task, whose features are computed on demand.

    Args:
        data: dataset of the task.
        task: the task in it.
    """

    def __init__(self, data: Dataset, task: TaskData) -> None:
        self._data, self.task = data, task

    @property
    def key(self) -> str:
        """Key that identifies it among tasks of its source."""
        return self.task.key

    @property
    def workload(self) -> Workload:
        """Workload that is computed."""
        return self.task.workload

    @property
    def hardware(self) -> Hardware:
        """Limits of the machine that it was measured on."""
        return self.task.hardware

    @cached_property
    def features(self) -> list[Features]:
        """Features of each program, (statements, features)."""
        by_program: list[Features] = [np.empty((0, len(NAMES)), np.float32)] * self._data.count(self.task)
        for rows, features in self._data.features(self.task):
            for row, of in zip(rows.tolist(), np.ascontiguousarray(features), strict=True):
                by_program[row] = of
        return by_program

    @cached_property
    def throughput(self) -> NDArray[np.float64]:
        """(programs,) best seconds / seconds, 0 for a failure."""
        return self._data.throughput(self.task)

    @cached_property
    def sample(self) -> list[Features]:
        """Features of the programs that were drawn at random; of all programs if there are too few."""
        drawn = np.flatnonzero(self._data.origin(self.task) == "random")
        if len(drawn) < LEAST_DRAWN:
            return self.features
        return [self.features[row] for row in drawn.tolist()]

    @cached_property
    def sample_rows(self) -> Features:
        """Statements of the sample: (rows, features)."""
        return concatenate_rows(self.sample)

    def __repr__(self) -> str:
        return f"SourceTask({self.task.key})"


Task = SourceTask | TargetTask


def concatenate_rows(features: Sequence[Features]) -> Features:
    """Stacks the statements of programs: (rows, features)."""
    return np.concatenate([np.empty((0, len(NAMES)), np.float32), *features])
