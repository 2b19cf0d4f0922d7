"""Steadiness of timings: their spread, the agreement of two halves, and the load of the machine by other programs."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from measure.host import allowed_cores

DISAGREE = 0.1
"""Relative difference of two halves of a measurement above which the machine was disturbed."""

_FEWEST = 6  # timings below which halves are not compared
_STAT, _LOOK = Path("/proc/stat"), 0.2  # the system's counts of ticks; seconds between two readings


def compute_spread(seconds: Sequence[float]) -> float:
    """Computes (75th percentile - 25th percentile) / median of timings; NaN without timings."""
    if not len(seconds):
        return math.nan
    low, middle, high = np.quantile(seconds, (0.25, 0.5, 0.75))
    return float((high - low) / middle) if middle > 0 else 0.0


def steady_seconds(turns: Sequence[float]) -> float:
    """Computes the median of the faster half of timings, which other programs on the machine disturb least."""
    return float(np.median(sorted(turns)[: max(1, len(turns) // 2)]))


def half_medians(seconds: Sequence[float]) -> tuple[float, float]:
    """Computes the medians of the first and the second half of timings in order of time; NaN for less than six."""
    half = len(seconds) // 2
    if len(seconds) < _FEWEST:
        return (math.nan, math.nan)
    return (float(np.median(seconds[:half])), float(np.median(seconds[-half:])))


def disagreement(halves: tuple[float, float]) -> float:
    """Returns the difference of two halves relative to the faster one; 0 if unknown."""
    first, second = halves
    return abs(first - second) / min(first, second) if min(first, second) > 0 else 0.0


def busy_cores() -> float:
    """Estimates how many of the cores that this process may use are busy with others; 0 if the system does not tell.

    Call it while this process is idle. A low load average identifies an idle machine without waiting.
    """
    try:
        if os.getloadavg()[0] < 0.3:
            return 0.0
        before = _read_ticks()
        time.sleep(_LOOK)
        after = _read_ticks()
    except OSError:
        return 0.0
    used = sum(busy for busy, _ in after) - sum(busy for busy, _ in before)
    total = sum(both for _, both in after) - sum(both for _, both in before)
    return len(after) * used / total if total > 0 else 0.0


def tell_if_busy(say: Callable[[str], None]) -> None:
    """Tells the user that others keep the machine busy, if they do."""
    busy, cores = busy_cores(), len(allowed_cores())
    if busy >= max(0.3, 0.1 * cores):
        say(f"the machine is busy: others use {busy:.1f} of {cores} cores, so timings are slower and less certain")


def _read_ticks() -> list[tuple[int, int]]:
    """Reads (busy ticks, all ticks) of each core that this process may use."""
    wanted = {f"cpu{core}" for core in allowed_cores()}
    ticks_by_core = []
    for line in _STAT.read_text(encoding="utf-8").splitlines():
        name, *counts = line.split()
        if name in wanted:
            ticks = [int(count) for count in counts[:8]]  # user nice system idle iowait irq softirq steal
            ticks_by_core.append((sum(ticks) - ticks[3] - ticks[4], sum(ticks)))
    return ticks_by_core
