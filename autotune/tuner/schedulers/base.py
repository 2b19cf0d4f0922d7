"""Interface of task schedulers, and the state of a task that they see."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class TaskState:
    """A task between two rounds.

    Attributes:
        weight: number of occurrences in the network.
        flops: operations of one execution.
        kind: name shared by tasks that are expected to reach similar rates.
        history: best seconds after each of its rounds; NaN before the first working trial.
        done: whether it cannot be tuned further, or not now, as it has a round in progress.
    """

    weight: float
    flops: float
    kind: str
    history: tuple[float, ...]
    done: bool


class TaskScheduler(ABC):
    """Policy that chooses the task of the next round."""

    @abstractmethod
    def choose(self, tasks: Sequence[TaskState]) -> int | None:
        """Returns the number of a task that is not done; None to end tuning."""
