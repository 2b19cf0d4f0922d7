"""Scheduler that gives each task one round in turn."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.tuner.schedulers.base import TaskScheduler, TaskState


class RoundRobin(TaskScheduler):
    """Scheduler that picks the task with the fewest rounds, the first of equals."""

    def choose(self, tasks: Sequence[TaskState]) -> int | None:
        open_tasks = [i for i, task in enumerate(tasks) if not task.done]
        return min(open_tasks, key=lambda i: len(tasks[i].history), default=None)
