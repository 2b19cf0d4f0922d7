"""Static memory: where in one arena each activation lies, so that values that are never alive together share it.

Placing intervals of given sizes so that the arena is smallest is NP-hard; the largest first, each at the lowest place
that is free throughout its life, is within a few per cent of the lower bound on networks (Pisarchyk and Lee, "Efficient
Memory Management for Deep Neural Net Inference", 2020).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

ALIGNMENT = 64


@dataclass(frozen=True)
class Interval:
    """A value's need.

    Attributes:
        name: of the value.
        nbytes: it takes.
        first, last: numbers of the steps that write it and read it for the last time.
    """

    name: str
    nbytes: int
    first: int
    last: int


@dataclass(frozen=True)
class MemoryPlan:
    """Offset of every value, and the size of the arena, in bytes."""

    offsets: dict[str, int]
    nbytes: int


def plan(intervals: Sequence[Interval], alignment: int = ALIGNMENT) -> MemoryPlan:
    """Places every interval; no two that overlap in time overlap in space."""
    ordered = sorted(intervals, key=lambda i: (-i.nbytes, i.first, i.name))
    first, last = (np.array([getattr(i, name) for i in ordered], np.int64) for name in ("first", "last"))
    starts, ends = np.zeros((2, len(ordered)), np.int64)  # of those placed, in this order
    offsets: dict[str, int] = {}
    for number, interval in enumerate(ordered):
        taken = np.flatnonzero((first[:number] <= interval.last) & (last[:number] >= interval.first))
        at = 0
        # Those taken need not be alive together and may overlap one another: `at` only ever goes up.
        for start, end in sorted(zip(starts[taken].tolist(), ends[taken].tolist(), strict=True)):
            if at + interval.nbytes <= start:
                break
            at = max(at, -(-end // alignment) * alignment)
        offsets[interval.name] = at
        starts[number], ends[number] = at, at + interval.nbytes
    return MemoryPlan(offsets, int(ends.max(initial=0)))


def lower_bound(intervals: Sequence[Interval]) -> int:
    """Bytes that are alive together at the worst step: no plan has a smaller arena."""
    changes: Counter[int] = Counter()
    for interval in intervals:
        changes[interval.first] += interval.nbytes
        changes[interval.last + 1] -= interval.nbytes
    return max(accumulate(changes[step] for step in sorted(changes)), default=0)
