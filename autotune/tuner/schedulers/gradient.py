"""Scheduler that picks the task with the largest expected gain (Zheng et al., "Ansor", OSDI 2020, section 6)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from autotune.tuner.schedulers.base import TaskScheduler, TaskState

Objective = Callable[[NDArray[np.float64]], float]


class Gradient(TaskScheduler):
    """Scheduler that descends along the steepest estimated slope of the objective over the rounds of each task.

    With g_i the best latency of task i after t_i rounds, the slope is
    df/dg_i * (alpha * (g_i(t) - g_i(t - w)) / w + (1 - alpha) * (min(g_i - g_i / t_i, beta * F_i / r_i) - g_i)),
    where r_i is the highest rate, in operations per second, of any task of its kind, and F_i its operations. Every task
    has one round first, in decreasing order of operations in the network: a budget may end before all have had one.

    Args:
        objective: function of the latencies of all tasks, in seconds; the weighted sum by default.
        alpha: weight of the gains of the last rounds, against expected ones.
        beta: trust in similar rates of tasks of one kind.
        window: number of rounds to look back.
        patience: number of rounds without a gain of 1 % after which a task gets no more; None: no limit.
    """

    def __init__(
        self,
        objective: Objective | None = None,
        alpha: float = 0.2,
        beta: float = 2.0,
        window: int = 3,
        patience: int | None = None,
    ) -> None:
        self._objective, self._alpha, self._beta, self._window = objective, alpha, beta, window
        self._patience = patience

    def choose(self, tasks: Sequence[TaskState]) -> int | None:
        open_tasks = [i for i, task in enumerate(tasks) if not task.done and not self._stagnant(task)]
        fresh = [i for i in open_tasks if not tasks[i].history]
        if fresh or not open_tasks:
            return max(fresh, key=lambda i: (tasks[i].weight * tasks[i].flops, -i), default=None)
        slopes = self.slopes(tasks)
        return min(open_tasks, key=lambda i: (slopes[i], i))

    def slopes(self, tasks: Sequence[TaskState]) -> NDArray[np.float64]:
        """Estimates the change of the objective by one more round of each task, (tasks,); the more negative the better.

        A task without a working trial counts as if it took as long as all others together.
        """
        last = np.array([task.history[-1] if task.history else math.nan for task in tasks])
        latencies = np.where(np.isnan(last), np.nansum(last), last)
        rates: dict[str, float] = {}
        for task, seconds in zip(tasks, last, strict=True):
            if seconds > 0:
                rates[task.kind] = max(rates.get(task.kind, 0.0), task.flops / seconds)
        steps = np.array([self._step(t, g, rates.get(t.kind)) for t, g in zip(tasks, latencies, strict=True)])
        out: NDArray[np.float64] = self._weights(tasks, latencies) * steps
        return out

    def _step(self, task: TaskState, latency: float, rate: float | None) -> float:
        rounds = len(task.history)
        window = min(self._window, rounds - 1)
        before = task.history[-1 - window] if window > 0 else latency
        backward = (latency - before) / window if window > 0 and not math.isnan(before) else 0.0
        hoped = latency - latency / max(rounds, 1)
        if rate is not None:
            hoped = min(hoped, self._beta * task.flops / rate)
        return self._alpha * backward + (1 - self._alpha) * (hoped - latency)

    def _weights(self, tasks: Sequence[TaskState], latencies: NDArray[np.float64]) -> NDArray[np.float64]:
        """Computes df/dg of each task."""
        if self._objective is None:
            return np.array([task.weight for task in tasks], float)
        base = self._objective(latencies)
        out = np.empty(len(tasks))
        for i, latency in enumerate(latencies):
            moved = latencies.copy()
            step = max(1e-3 * latency, 1e-12)
            moved[i] -= step
            out[i] = (base - self._objective(moved)) / step
        return out

    def _stagnant(self, task: TaskState) -> bool:
        if self._patience is None or len(task.history) <= self._patience:
            return False
        before, now = task.history[-1 - self._patience], task.history[-1]
        return bool(now > 0.99 * before)
