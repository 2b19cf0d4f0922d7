"""Schedulers, which choose the next task to tune. A new scheduler is one file and one line in `SCHEDULERS`."""

from __future__ import annotations

from autotune.tuner.schedulers.base import TaskScheduler, TaskState
from autotune.tuner.schedulers.gradient import Gradient
from autotune.tuner.schedulers.round_robin import RoundRobin
from search_space.operators.checks import choice

SCHEDULERS: dict[str, type[TaskScheduler]] = {"gradient": Gradient, "round_robin": RoundRobin}

__all__ = ["SCHEDULERS", "Gradient", "RoundRobin", "TaskScheduler", "TaskState", "get"]


def get(name: str) -> type[TaskScheduler]:
    """Returns the class of the scheduler of that name.

    Raises:
        ValueError: the name is unknown.
    """
    return SCHEDULERS[choice("scheduler", name, SCHEDULERS)]
