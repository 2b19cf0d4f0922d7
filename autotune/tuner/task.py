"""Tasks: workloads to tune, with their weights."""

from __future__ import annotations

from dataclasses import dataclass

from search_space.workloads import Workload

CPU = "cpu"
"""Default target of models."""


@dataclass(frozen=True)
class Task:
    """Workload of a run.

    Attributes:
        name: readable name, unique in the run, legal as a folder's name.
        workload: computation of the task.
        weight: number of times that it runs in the tuned network.
        target: target to run on; None: the run's own target.
        occurrences: number of places in the tuned network; a loop runs one several times, with the same weights. 0: as
            many as it runs.
    """

    name: str
    workload: Workload
    weight: int = 1
    target: str | None = None
    occurrences: int = 0
