"""Static memory planning: offsets of activations in one arena; values that never live together share memory.

Placement of intervals with the smallest arena is NP-hard. Intervals are placed by decreasing size, each at the lowest
offset that is free throughout its life. On networks this is within a few per cent of the lower bound (Pisarchyk and
Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

ALIGNMENT = 64
"""Default alignment of offsets in bytes."""


@dataclass(frozen=True)
class Interval:
    """The size and lifetime of a value.

    Attributes:
        name: name of the value.
        nbytes: size in bytes.
        first, last: numbers of the steps that write it and read it for the last time.
    """

    name: str
    nbytes: int
    first: int
    last: int


@dataclass(frozen=True)
class MemoryPlan:
    """Offset of each value, and the size of the arena, in bytes."""

    offsets: dict[str, int]
    nbytes: int


def plan(intervals: Sequence[Interval], alignment: int = ALIGNMENT) -> MemoryPlan:
    """Assigns an offset to each interval; intervals that overlap in time do not overlap in memory."""
    ordered = sorted(intervals, key=lambda i: (-i.nbytes, i.first, i.name))
    first, last = (np.array([getattr(i, name) for i in ordered], np.int64) for name in ("first", "last"))
    starts, ends = np.zeros((2, len(ordered)), np.int64)  # of placed intervals, in this order
    offsets: dict[str, int] = {}
    for number, interval in enumerate(ordered):
        taken = np.flatnonzero((first[:number] <= interval.last) & (last[:number] >= interval.first))
        at = 0
        # These intervals need not live together and may overlap one another: `at` only increases.
        for start, end in sorted(zip(starts[taken].tolist(), ends[taken].tolist(), strict=True)):
            if at + interval.nbytes <= start:
                break
            at = max(at, -(-end // alignment) * alignment)
        offsets[interval.name] = at
        starts[number], ends[number] = at, at + interval.nbytes
    return MemoryPlan(offsets, int(ends.max(initial=0)))


def lower_bound(intervals: Sequence[Interval]) -> int:
    """Computes the most bytes that live at one step: no plan has a smaller arena."""
    changes: Counter[int] = Counter()
    for interval in intervals:
        changes[interval.first] += interval.nbytes
        changes[interval.last + 1] -= interval.nbytes
    return max(accumulate(changes[step] for step in sorted(changes)), default=0)
