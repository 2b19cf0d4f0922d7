"""A task: one workload to tune, and how much it counts."""

from __future__ import annotations

from dataclasses import dataclass

from search_space.workloads import Workload

CPU = "cpu"
"""The target of models where none is named."""


@dataclass(frozen=True)
class Task:
    """A workload of a run.

    Attributes:
        name: readable, unique in the run, fit for a folder's name.
        workload: what is computed.
        weight: how often it runs in what is being tuned.
        target: where it runs, in place of the run's own target; None: there.
        places: where it stands in what is being tuned; a loop runs it several times in one, with the same weights.
            0: as many as it runs.
    """

    name: str
    workload: Workload
    weight: int = 1
    target: str | None = None
    places: int = 0
