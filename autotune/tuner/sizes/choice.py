"""Which of many schedules to keep for a distribution of sizes, and at which size each of these runs.

That k schedules be chosen of many such that the best of them at each size is good over all sizes is a problem of
covers: taking them greedily, each time the one that gains the most, is near the optimum (Nemhauser, Wolsey and Fisher,
1978); here exchanges of one for another follow. DietCode (Zheng et al., MLSys 2022) chooses by the shape, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from autotune.tuner.sizes.opening import Opening

LEAST_GAIN = 0.005
"""Share of the objective that one more schedule must save."""
CLEARLY = 0.03
"""Share of its time that another schedule must be estimated to save at a size that was not timed."""

Objective = Literal["geomean", "mean"]
"""`geomean`: of seconds over those of the fastest that is known at a size. `mean`: of seconds. Both weighted."""

Matrix = NDArray[np.float64]


def check_objective(objective: str) -> None:
    """Raises ValueError where it is none."""
    if objective not in get_args(Objective):
        raise ValueError(f"`objective` must be one of {', '.join(get_args(Objective))}, but got {objective!r}")


def mean_of(objective: str, weights: Matrix, seconds: Matrix, best: Matrix) -> Matrix:
    """What is to be small: weights (sizes,), seconds (..., sizes), best known seconds (sizes,) → (...)."""
    shares = weights / weights.sum()
    if objective == "mean":
        found: Matrix = seconds @ shares
    else:
        found = np.exp(np.log(seconds / best) @ shares)
    return found


def chosen(
    everywhere: Sequence[bool],
    seconds: Matrix,
    weights: Matrix,
    count: int,
    objective: str = "geomean",
) -> list[int]:
    """Places of at most `count` schedules that together make the objective small.

    Args:
        everywhere: whether each schedule holds for all of the range; one of those that do is chosen, so that there
            is a kernel for the sizes between those that were timed.
        seconds: (schedules, sizes); infinite where one does not hold.
        weights: (sizes,).
        count: at least 1.
        objective: see `Objective`.
    """
    best = seconds.min(axis=0)
    allowed = np.asarray(everywhere)

    def with_one_more(taken: Sequence[int]) -> Matrix:
        rest = seconds[list(taken)].min(axis=0) if taken else np.full(len(weights), np.inf)
        values = mean_of(objective, weights, np.minimum(rest, seconds), best)
        return values if any(allowed[place] for place in taken) else np.where(allowed, values, np.inf)

    taken: list[int] = []
    value = np.inf
    while len(taken) < count:
        values = with_one_more(taken)
        place = int(values.argmin())
        if not values[place] < value * (1 - LEAST_GAIN):
            break
        taken.append(place)
        value = float(values[place])
        value = _exchanged(taken, value, with_one_more)
    return taken


def _exchanged(taken: list[int], value: float, with_one_more: Callable[[Sequence[int]], Matrix]) -> float:
    """Exchanges schedules that are taken for others, one at a time, as long as that gains; the value then."""
    gained = len(taken) > 1
    while gained:
        gained = False
        for number in range(len(taken)):
            values = with_one_more([*taken[:number], *taken[number + 1 :]])
            place = int(values.argmin())
            if values[place] < value * (1 - LEAST_GAIN):
                taken[number], value, gained = place, float(values[place]), True
    return value


@dataclass(frozen=True)
class Timed:
    """A schedule with what was measured of it.

    Attributes:
        opening: its trace, and the sizes for which it holds.
        seconds: of a call, by size; of those listed that it holds for.
        work: what the roofline estimates at any sizes, in seconds: (sizes,) → (sizes,).
    """

    opening: Opening
    seconds: Mapping[int, float]
    work: Callable[[NDArray[np.int64]], Matrix]

    def at(self, sizes: NDArray[np.int64]) -> Matrix:
        """Seconds at any sizes; infinite where it does not hold: (sizes,) → (sizes,).

        Between sizes that were timed, what the machine takes over what the roofline estimates changes little, and is
        interpolated; the estimate itself jumps where one more tile is computed.
        """
        holds = (self.opening.low <= sizes) & (sizes <= self.opening.high)
        known = np.array(sorted(self.seconds), np.int64)
        over = np.log([self.seconds[n] for n in known.tolist()]) - np.log(self.work(known))
        return np.where(holds, self.work(sizes) * np.exp(np.interp(np.log(sizes), np.log(known), over)), np.inf)


def ranges(low: int, high: int, listed: Sequence[int], kept: Sequence[Timed]) -> list[tuple[int, int, int]]:
    """(least size, greatest size, place in `kept`) in order, which together have all sizes from `low` to `high`.

    At a listed size it is the fastest schedule. At others it is that of the nearest listed size below or above, unless
    another is estimated to be clearly faster.
    """
    every = np.arange(low, high + 1)
    seconds = np.stack([timed.at(every) for timed in kept])  # (kept, sizes)
    fastest = seconds.argmin(axis=0)  # (sizes,)
    marks = np.asarray(listed) - low  # (listed,)
    exact = np.array([[timed.seconds.get(n, np.inf) for n in listed] for timed in kept]).argmin(axis=0)
    places = np.arange(len(every))
    below = np.clip(np.searchsorted(marks, places, side="right") - 1, 0, len(marks) - 1)
    above = np.clip(below + 1, 0, len(marks) - 1)
    near = np.stack([exact[below], exact[above]])  # (2, sizes)
    near = near[seconds[near, places].argmin(axis=0), places]
    winners = np.where(seconds[fastest, places] < seconds[near, places] * (1 - CLEARLY), fastest, near)
    winners[marks] = exact
    starts = np.flatnonzero(np.diff(winners, prepend=-1))
    ends = np.append(starts[1:], len(every))
    return [(low + int(a), low + int(b) - 1, int(winners[a])) for a, b in zip(starts, ends, strict=True)]
