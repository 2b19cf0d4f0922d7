"""Schedulers of tasks: whose round is next, on made-up histories."""

from __future__ import annotations

import math

import numpy as np
import pytest

from autotune.tuner import schedulers
from autotune.tuner.schedulers import Gradient, RoundRobin, TaskState


def task(
    *history: float, weight: float = 1.0, flops: float = 1e9, kind: str = "conv2d", done: bool = False
) -> TaskState:
    return TaskState(weight, flops, kind, history, done)


def test_round_robin_takes_turns_and_passes_over_what_is_done() -> None:
    assert RoundRobin().choose([task(1.0), task(), task()]) == 1
    assert RoundRobin().choose([task(1.0), task(done=True), task(1.0, 0.9)]) == 0
    assert RoundRobin().choose([task(done=True)]) is None


def test_gradient_gives_every_task_a_round_first() -> None:
    assert Gradient().choose([task(1.0), task(), task()]) == 1


def test_gradient_begins_with_most_operations() -> None:
    tasks = [task(flops=2e9), task(flops=1e9, weight=3.0), task(1.0, flops=9e9), task(flops=9e9, done=True)]
    assert Gradient().choose(tasks) == 1


def test_gradient_prefers_weight_then_size() -> None:
    assert Gradient().choose([task(1e-3), task(1e-3, weight=5.0)]) == 1
    assert Gradient().choose([task(1e-3, kind="a"), task(9e-3, flops=9e9, kind="b")]) == 1


def test_gradient_prefers_a_task_far_behind_its_kind() -> None:
    slow, fast = task(8e-3, 8e-3, 8e-3, 8e-3), task(1e-3)
    assert Gradient(alpha=0.0).choose([slow, fast]) == 0
    alone = task(8e-3, 8e-3, 8e-3, 8e-3, kind="other")
    assert Gradient(alpha=0.0).slopes([alone, fast])[0] > Gradient(alpha=0.0).slopes([slow, fast])[0]


def test_gradient_prefers_what_has_been_falling() -> None:
    falling, flat = task(4e-3, 3e-3, 2e-3, kind="a"), task(2e-3, 2e-3, 2e-3, kind="b")
    assert Gradient(alpha=1.0).choose([flat, falling]) == 1


def test_patience_ends_a_task_and_then_the_run() -> None:
    still = task(1.0, 1.0, 1.0, 1.0)
    assert Gradient(patience=3).choose([still, task(0.1)]) == 1
    assert Gradient(patience=3).choose([still]) is None
    assert Gradient().choose([still]) == 0


def test_a_task_for_which_nothing_worked_is_tried_again() -> None:
    assert Gradient().choose([task(1.0, 1.0), task(math.nan)]) == 1


def test_an_objective_of_ones_own_decides() -> None:
    tasks = [task(2.0), task(1.0)]
    assert Gradient(objective=lambda g: float(g[1])).choose(tasks) == 1
    slopes = Gradient(objective=lambda g: float(np.max(g))).slopes(tasks)
    assert slopes[0] < 0 and slopes[1] == 0


def test_an_unknown_name_suggests() -> None:
    with pytest.raises(ValueError, match="did you mean 'gradient'"):
        schedulers.get("gradent")
