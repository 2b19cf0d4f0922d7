"""The benchmark of schedulers gives out recorded rounds."""

import numpy as np

from autotune.schedulers import Gradient, RoundRobin, TaskState
from benchmarks.scheduling import compared, reached, simulated


def test_schedulers_give_out_recorded_rounds() -> None:
    heavy = TaskState(10, 1e9, "a", (4.0, 3.0, 2.0, 1.0), True)
    light = TaskState(1, 1e9, "b", (1.0, 1.0, 1.0, 1.0), True)
    in_turn = simulated(RoundRobin(), [heavy, light], 6)
    np.testing.assert_array_equal(in_turn[1:], [41, 31, 31, 21, 21])
    assert np.isnan(in_turn[0])
    steep = simulated(Gradient(), [heavy, light], 6)
    assert steep[-1] == 11 and reached(steep, 21.0) == 4 and reached(in_turn, 20.0) is None


def test_what_is_recorded_ends() -> None:
    task = TaskState(1, 1e9, "a", (2.0, 1.0), True)
    assert len(simulated(RoundRobin(), [task], 9)) == 2


def test_budgets_are_compared() -> None:
    heavy = TaskState(10, 1e9, "a", (4.0, 3.0, 2.0, 1.0), True)
    light = TaskState(1, 1e9, "b", (1.0, 1.0, 1.0, 1.0), True)
    (row,) = compared([heavy, light], [12], 2)
    assert row == {"trials": 12, "final_seconds": {"gradient": 11.0, "round_robin": 21.0}, "reached_after": 8}
