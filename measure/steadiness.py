"""How steady timings were: their spread, whether two halves of them agree, and what others do on the machine."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from measure.host import allowed_cores

DISAGREE = 0.1
"""Difference of two halves of a measurement, as a share of it, from which the machine was not itself meanwhile."""

_FEWEST = 6  # timings of which halves are compared
_STAT, _LOOK = Path("/proc/stat"), 0.2  # where the system counts what cores do; seconds of looking


def spread_of(seconds: Sequence[float]) -> float:
    """(75th percentile - 25th percentile) / median of timings; NaN where there is none."""
    if not len(seconds):
        return math.nan
    low, middle, high = np.quantile(seconds, (0.25, 0.5, 0.75))
    return float((high - low) / middle) if middle > 0 else 0.0


def steady_seconds(turns: Sequence[float]) -> float:
    """Median of the faster half of timings: it sees through what others do on the machine meanwhile."""
    return float(np.median(sorted(turns)[: max(1, len(turns) // 2)]))


def halves_of(seconds: Sequence[float]) -> tuple[float, float]:
    """Medians of the first and of the second half of timings in order of time; NaN where there are few."""
    half = len(seconds) // 2
    if len(seconds) < _FEWEST:
        return (math.nan, math.nan)
    return (float(np.median(seconds[:half])), float(np.median(seconds[-half:])))


def disagreement(halves: tuple[float, float]) -> float:
    """By how much two halves differ, as a share of the faster one; 0 where nothing is known."""
    first, second = halves
    return abs(first - second) / min(first, second) if min(first, second) > 0 else 0.0


def busy_cores() -> float:
    """How many of the cores that this process may use others keep busy now; 0 where the system does not say.

    Called while this process does nothing else. An idle machine is known by its load, without looking for long.
    """
    try:
        if os.getloadavg()[0] < 0.3:
            return 0.0
        before = _spent()
        time.sleep(_LOOK)
        after = _spent()
    except OSError:
        return 0.0
    used = sum(busy for busy, _ in after) - sum(busy for busy, _ in before)
    whole = sum(both for _, both in after) - sum(both for _, both in before)
    return len(after) * used / whole if whole > 0 else 0.0


def tell_if_busy(say: Callable[[str], None]) -> None:
    """Says that others keep the machine busy, where they do."""
    busy, cores = busy_cores(), len(allowed_cores())
    if busy >= max(0.3, 0.1 * cores):
        say(f"the machine is busy: others use {busy:.1f} of {cores} cores, so timings are slower and less certain")


def _spent() -> list[tuple[int, int]]:
    """Of each core allowed: ticks in which it was busy, and all."""
    wanted = {f"cpu{core}" for core in allowed_cores()}
    found = []
    for line in _STAT.read_text(encoding="utf-8").splitlines():
        name, *counts = line.split()
        if name in wanted:
            ticks = [int(count) for count in counts[:8]]  # user nice system idle iowait irq softirq steal
            found.append((sum(ticks) - ticks[3] - ticks[4], sum(ticks)))
    return found
