"""What a scheduler of tasks sees and says."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class TaskState:
    """A task between two rounds.

    Attributes:
        weight: how often it occurs in the network.
        flops: operations of one execution.
        kind: tasks of one kind are expected to reach similar rates.
        history: best seconds after each of its rounds; NaN where nothing had worked by then.
        done: whether it can be tuned no further, or not now, as it has a round under way.
    """

    weight: float
    flops: float
    kind: str
    history: tuple[float, ...]
    done: bool


class TaskScheduler(ABC):
    """Chooses the task that the next round goes to."""

    @abstractmethod
    def choose(self, tasks: Sequence[TaskState]) -> int | None:
        """Number of a task that is not done; None where tuning should end."""
