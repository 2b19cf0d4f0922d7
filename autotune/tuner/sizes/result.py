"""Result of tuning for a distribution of sizes: ranges with their schedules, times, and one callable for all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from autotune.tuner.result import TuneResult
from autotune.tuner.sizes.choice import compute_objective
from autotune.tuner.sizes.opening import Define, Opening, load_kernel
from autotune.units import latency
from search_space.former_names import FormerAttribute
from search_space.schedule.trace import Trace
from targets.base import Kernel
from targets.dispatch import Dispatch, Within


@dataclass(frozen=True)
class SizeRange:
    """Range of sizes, both ends inclusive, with its trace and the number of its schedule in the result."""

    low: int
    high: int
    trace: Trace
    schedule: int = 0


@dataclass(frozen=True, repr=False)
class SizesResult:
    """Outcome of `tune_for_sizes`.

    Attributes:
        define: definition that was tuned, by its size.
        target: name of the target; size: name of the size.
        schedules: schedules of the result, and the sizes for which each holds, in order of the first size where each
            runs.
        parts: ranges of sizes, in order, which together cover all sizes. Several may have one schedule.
        weights: weight of each size; seconds: latency of one call at that size, by the kernel of its part.
        best: latency of one call at each size by the fastest schedule timed there, in the result or not.
        search_results: results of the searches, by size.
        objective: objective that was minimised, see `tune_for_sizes`.
        interrupted: whether the user ended it early.
    """

    define: Define
    target: str
    size: str
    schedules: tuple[Opening, ...]
    parts: tuple[SizeRange, ...]
    weights: Mapping[int, float]
    seconds: Mapping[int, float]
    best: Mapping[int, float]
    search_results: Mapping[int, TuneResult]
    objective: str = "geomean"
    interrupted: bool = False

    tuned = FormerAttribute("search_results")

    @property
    def mean_seconds(self) -> float:
        """Weighted mean of a call's seconds over the sizes."""
        return self._mean("mean")

    @property
    def mean_ratio(self) -> float:
        """Weighted geometric mean over the sizes of seconds over those of the fastest known schedule; at least 1."""
        return self._mean("geomean")

    @property
    def trials(self) -> int:
        """Number of candidates measured in all searches, those of resumed runs included."""
        return sum(len(result.records) for result in self.search_results.values())

    def find_range(self, n: int) -> SizeRange:
        """Returns the part of a size.

        Raises:
            ValueError: the size is out of range.
        """
        for part in self.parts:
            if part.low <= n <= part.high:
                return part
        low, high = self.parts[0].low, self.parts[-1].high
        raise ValueError(f"`{self.size}` must be {low} to {high}, but got {n}")

    @cached_property
    def kernel(self) -> Dispatch:
        """Callable for the arrays of any size in range, the output last. Each schedule is built once."""
        kernels: list[Kernel] = []
        for number, opening in enumerate(self.schedules):
            mine = [part for part in self.parts if part.schedule == number]
            used = Opening(opening.trace, mine[0].low, mine[-1].high)
            kernels.append(load_kernel(self.define, used, self.target, self.size))
        return Dispatch([self._within(kernels[part.schedule], part) for part in self.parts])

    def summary(self) -> dict[str, Any]:
        """Returns plain data: for each listed size its weight, seconds, schedule number, and fastest known seconds."""
        sizes = [
            {
                "at": n,
                "weight": weight,
                "seconds": self.seconds[n],
                "schedule": self.find_range(n).schedule,
                "best_seconds": self.best[n],
                "ratio": self.seconds[n] / self.best[n],
            }
            for n, weight in self.weights.items()
        ]
        return {
            "size": self.size,
            "target": self.target,
            "objective": self.objective,
            "mean_seconds": self.mean_seconds,
            "mean_ratio": self.mean_ratio,
            "trials": self.trials,
            "interrupted": self.interrupted,
            "sizes": sizes,
            "parts": [{"low": p.low, "high": p.high, "schedule": p.schedule} for p in self.parts],
            "traces": [[dict(step) for step in opening.trace.to_json()] for opening in self.schedules],
        }

    def __repr__(self) -> str:
        """Formats a line for each listed size: its time, schedule number, and ratio to the fastest known."""
        ended = ", interrupted" if self.interrupted else ""
        head = (
            f"SizesResult of {self.size} from {self.parts[0].low} to {self.parts[-1].high}: "
            f"{len(self.schedules)} schedules, {self.trials} trials{ended}\n"
            f"  mean {latency(self.mean_seconds)}, {self.mean_ratio:.3f}x the fastest known"
        )
        lines = [
            f"  {self.size}={row['at']}: {latency(row['seconds'])} by schedule {row['schedule']}, {row['ratio']:.3f}x"
            for row in self.summary()["sizes"]
        ]
        return "\n".join([head, *lines])

    def _mean(self, objective: str) -> float:
        columns = (self.weights, self.seconds, self.best)
        weights, seconds, best = (np.array([column[n] for n in self.weights]) for column in columns)
        return float(compute_objective(objective, weights, seconds, best))

    def _within(self, kernel: Kernel, part: SizeRange) -> Kernel:
        """Restricts a kernel to the sizes of one of its ranges; a kernel without an open size has one range."""
        if not kernel.module.sizes or kernel.module.sizes[self.size] == (part.low, part.high):
            return kernel
        return Within(kernel, {self.size: (part.low, part.high)})
