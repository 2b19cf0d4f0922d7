"""Static memory: where in one arena each activation lies, so that values that are never alive together share it.

Placing intervals of given sizes so that the arena is smallest is NP-hard; the largest first, each at the lowest place
that is free throughout its life, is within a few per cent of the lower bound on networks (Pisarchyk and Lee, "Efficient
Memory Management for Deep Neural Net Inference", 2020).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
    placed: list[tuple[int, int, Interval]] = []
    offsets: dict[str, int] = {}
    for interval in sorted(intervals, key=lambda i: (-i.nbytes, i.first, i.name)):
        taken = sorted((start, end) for start, end, other in placed if _together(interval, other))
        at = 0
        # Those taken need not be alive together and may overlap one another: `at` only ever goes up.
        for start, end in taken:
            if at + interval.nbytes <= start:
                break
            at = max(at, -(-end // alignment) * alignment)
        offsets[interval.name] = at
        placed.append((at, at + interval.nbytes, interval))
    return MemoryPlan(offsets, max((end for _, end, _ in placed), default=0))


def lower_bound(intervals: Sequence[Interval]) -> int:
    """Bytes that are alive together at the worst step: no plan has a smaller arena."""
    # What is alive together only grows where something begins.
    steps = sorted({i.first for i in intervals})
    return max((sum(i.nbytes for i in intervals if i.first <= step <= i.last) for step in steps), default=0)


def _together(a: Interval, b: Interval) -> bool:
    return a.first <= b.last and b.first <= a.last
