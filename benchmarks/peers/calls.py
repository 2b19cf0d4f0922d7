"""Timing of Python calls: warm-up, single executions, and the cost of an empty call."""

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


def measure_seconds(call: Call, samples: int, overhead: float = 0.0) -> NDArray[np.float64]:
    """Times each execution, less `overhead`, in seconds: `(samples,)`."""
    warm_up(call)
    seconds = np.empty(samples)
    for index in range(samples):
        start = time.perf_counter()
        call()
        seconds[index] = time.perf_counter() - start
    return np.maximum(seconds - overhead, 1e-9)


def seconds_above(call: Call, empty: Call, samples: int) -> NDArray[np.float64]:
    """Times each execution, less the median of empty ones before and after, in seconds: `(samples,)`.

    For calls that take little more than an empty one, whose cost changes by some microseconds within a minute.
    """
    half = max(1, samples // 2)
    before, found, after = measure_seconds(empty, half), measure_seconds(call, samples), measure_seconds(empty, half)
    return np.maximum(found - np.median([*before, *after]), 1e-9)


def medians(calls: Mapping[str, Call], samples: int = 20, rounds: int = 3) -> dict[str, float]:
    """Times calls in turns, and returns the best of `rounds` medians of each."""
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(rounds):
        for name, call in calls.items():
            best[name] = min(best[name], float(np.median(measure_seconds(call, samples))))
    return best
