"""Timing of Python calls: warm-up, single executions, and what an empty call costs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

Call = Callable[[], object]


def warm_up(call: Call, seconds: float = 0.01, fewest: int = 3) -> None:
    """Runs `call` at least `fewest` times and for `seconds`."""
    end = time.perf_counter() + seconds
    done = 0
    while done < fewest or time.perf_counter() < end:
        call()
        done += 1


def seconds_of(call: Call, samples: int, overhead: float = 0.0) -> NDArray[np.float64]:
    """Seconds of each execution, `(samples,)`, `overhead` taken off."""
    warm_up(call)
    found = np.empty(samples)
    for index in range(samples):
        start = time.perf_counter()
        call()
        found[index] = time.perf_counter() - start
    return np.maximum(found - overhead, 1e-9)


def seconds_above(call: Call, empty: Call, samples: int) -> NDArray[np.float64]:
    """Seconds of each execution, `(samples,)`, above the median of as many empty ones, half of them before, half after.

    For calls that take little more than an empty one: what that costs changes by some microseconds within a minute.
    """
    half = max(1, samples // 2)
    before, found, after = seconds_of(empty, half), seconds_of(call, samples), seconds_of(empty, half)
    return np.maximum(found - np.median([*before, *after]), 1e-9)


def medians(calls: Mapping[str, Call], samples: int = 20, rounds: int = 3) -> dict[str, float]:
    """Best of `rounds` medians of each call, taken in turns."""
    found = dict.fromkeys(calls, float("inf"))
    for _ in range(rounds):
        for name, call in calls.items():
            found[name] = min(found[name], float(np.median(seconds_of(call, samples))))
    return found
