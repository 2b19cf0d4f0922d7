"""Costs by which `tuner.size_ranges` chooses schedules of an operator for a distribution of one size.

DietCode (Zheng et al., MLSys 2022) also chooses by the shape.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from autotune.tuner.size_ranges import Matrix, choose_candidates, choose_ranges
from autotune.tuner.sizes.opening import Opening

LEAST_GAIN = 0.005
"""Share of the objective that one more schedule must save; for the mean, share of the least possible value."""
CLEARLY = 0.03
"""Share of its time that another schedule must save, by estimate, at a size that was not timed."""

Objective = Literal["geomean", "mean"]
"""Names of weighted objectives. `geomean`: of seconds over those of the fastest known at a size. `mean`: of seconds."""


def check_objective(objective: str) -> None:
    """Raises ValueError if the objective is unknown."""
    if objective not in get_args(Objective):
        raise ValueError(f"`objective` must be one of {', '.join(get_args(Objective))}, but got {objective!r}")


def compute_objective(objective: str, weights: Matrix, seconds: Matrix, best: Matrix) -> Matrix:
    """Computes the objective: weights (sizes,), seconds (..., sizes), best seconds (sizes,) → (...)."""
    total: Matrix = _costs(objective, weights, seconds, best).sum(-1)
    return total if objective == "mean" else np.exp(total)


def _costs(objective: str, weights: Matrix, seconds: Matrix, best: Matrix) -> Matrix:
    """Computes parts of the objective, or of its logarithm, that sum up to it: (..., sizes)."""
    parts: Matrix = (seconds if objective == "mean" else np.log(seconds / best)) * (weights / weights.sum())
    return parts


def choose_schedules(
    everywhere: Sequence[bool], seconds: Matrix, weights: Matrix, limit: int, objective: str = "geomean"
) -> list[int]:
    """Chooses at most `limit` schedules that together make the objective small.

    Args:
        everywhere: whether each schedule holds for all of the range; at least one such schedule is chosen, so that
            there is a kernel for the sizes between those that were timed.
        seconds: latency of each schedule, (schedules, sizes); infinite where one does not hold.
        weights: weight of each size, (sizes,).
        limit: largest number of schedules, at least 1.
        objective: value of `Objective`.
    """
    costs = _costs(objective, weights, seconds, seconds.min(axis=0))
    price = costs.min(axis=0).sum() * LEAST_GAIN if objective == "mean" else -math.log1p(-LEAST_GAIN)
    between = np.where(everywhere, 0.0, np.inf)  # a point for sizes that are not listed, without weight
    return choose_candidates(np.column_stack([costs, between]), np.full(len(seconds), price), limit)


@dataclass(frozen=True)
class TimedSchedule:
    """Schedule with its measurements.

    Attributes:
        opening: its trace, and the sizes for which it holds.
        seconds: latency of a call, by size, for the listed sizes for which it holds.
        work: function of the roofline's estimate in seconds at any sizes: (sizes,) → (sizes,).
    """

    opening: Opening
    seconds: Mapping[int, float]
    work: Callable[[NDArray[np.int64]], Matrix]

    def at(self, sizes: NDArray[np.int64]) -> Matrix:
        """Estimates seconds at any sizes; infinite where it does not hold: (sizes,) → (sizes,).

        Between sizes that were timed, the ratio of measurement to roofline changes little, and is interpolated; the
        estimate itself jumps where one more tile is computed.
        """
        holds = (self.opening.low <= sizes) & (sizes <= self.opening.high)
        known = np.array(sorted(self.seconds), np.int64)
        over = np.log([self.seconds[n] for n in known.tolist()]) - np.log(self.work(known))
        return np.where(holds, self.work(sizes) * np.exp(np.interp(np.log(sizes), np.log(known), over)), np.inf)


def divide_sizes(listed_sizes: Sequence[int], schedules: Sequence[TimedSchedule]) -> list[tuple[int, int, int]]:
    """Divides all sizes from the first to the last one listed into ranges, each with a schedule.

    A listed size has the fastest schedule. Each other size has that of the nearest listed one below or above, unless
    another is estimated to be clearly faster.

    Returns:
        Smallest size, largest size and position in `schedules` of each range, in order.
    """
    low, marks, every = listed_sizes[0], np.asarray(listed_sizes), np.arange(listed_sizes[0], listed_sizes[-1] + 1)
    measured = np.array([[timed.seconds.get(n, np.inf) for n in listed_sizes] for timed in schedules])
    fastest = measured.argmin(axis=0)  # (listed,)
    below = np.searchsorted(marks, every, side="right") - 1
    above = np.minimum(below + 1, len(marks) - 1)
    rows = np.arange(len(schedules))[:, None]
    near = (rows == fastest[below]) | (rows == fastest[above])  # (schedules, sizes)
    costs = np.stack([timed.at(every) for timed in schedules]) / np.where(near, 1, 1 - CLEARLY)
    costs[:, marks - low] = measured
    return [(low + begin, low + end - 1, int(best[0])) for begin, end, best in choose_ranges(costs[None])]
