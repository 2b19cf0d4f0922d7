"""Which task of a network is tuned next. A new scheduler is one file and one line in `SCHEDULERS`."""

from __future__ import annotations

from autotune.naming import nearest
from autotune.schedulers.base import TaskScheduler, TaskState
from autotune.schedulers.gradient import Gradient
from autotune.schedulers.round_robin import RoundRobin

SCHEDULERS: dict[str, type[TaskScheduler]] = {"gradient": Gradient, "round_robin": RoundRobin}

__all__ = ["SCHEDULERS", "Gradient", "RoundRobin", "TaskScheduler", "TaskState", "get"]


def get(name: str) -> type[TaskScheduler]:
    """The scheduler of that name.

    Raises:
        ValueError: there is none.
    """
    if name not in SCHEDULERS:
        raise ValueError(
            f"`scheduler` must be one of {', '.join(SCHEDULERS)}, but got scheduler={name!r}{nearest(name, SCHEDULERS)}"
        )
    return SCHEDULERS[name]
