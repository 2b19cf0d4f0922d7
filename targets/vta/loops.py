"""Loops around an operation as one instruction: two loops of its own, micro-operations for the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from targets.vta.hardware import ITERATION_BITS

MOST_ITERATIONS = (1 << ITERATION_BITS) - 1


@dataclass(frozen=True)
class Loop:
    """An extent, and the steps of destination, source and weights in elements."""

    extent: int
    steps: tuple[int, int, int]

    @property
    def sums(self) -> bool:
        """True if all iterations have one destination, so that they sum."""
        return self.steps[0] == 0


@dataclass(frozen=True)
class FoldedLoops:
    """An instruction's loops and micro-operations.

    Attributes:
        outer, inner: the loops.
        uops: destination, source and weight of each micro-operation: (count, 3).
    """

    outer: Loop
    inner: Loop
    uops: NDArray[np.int64]

    def fields(self) -> dict[str, int]:
        """Returns the loops by the names of the instruction's fields; the ALU has no field for weights."""
        loops = {"out": self.outer, "in": self.inner}
        found = {f"iter_{name}": loop.extent for name, loop in loops.items()}
        for place, operand in enumerate(("dst", "src", "wgt")):
            found |= {f"{operand}_{name}": loop.steps[place] for name, loop in loops.items()}
        return found


def fold(loops: Sequence[Loop], base: tuple[int, int, int], widest: tuple[int, int, int]) -> FoldedLoops:
    """Folds loops into as few micro-operations as possible: the longest loops become the instruction's own.

    Of the other loops, those that sum are outermost, so that neighbouring micro-operations differ in their destination:
    hardware with a pipeline needs that. The order of sums does not matter, as integers wrap.

    Args:
        loops: outermost first.
        base: destination, source and weight of the first operation.
        widest: exclusive upper bounds of each step, so that it fits the instruction's fields.
    """
    left = _merge_loops([loop for loop in loops if loop.extent > 1])
    able = [
        loop
        for loop in left
        if loop.extent <= MOST_ITERATIONS and all(s < w for s, w in zip(loop.steps, widest, strict=True))
    ]
    own = sorted(able, key=lambda loop: loop.extent, reverse=True)[:2]
    rest = [loop for loop in left if loop not in own]
    if rest and all(loop.sums for loop in rest):  # one that moves the destination changes places with one that sums
        moving = [loop for loop in own if not loop.sums]
        summing = [loop for loop in rest if loop in able]
        if moving and summing:
            given, taken = min(moving, key=lambda m: m.extent), max(summing, key=lambda m: m.extent)
            own = [loop for loop in own if loop is not given] + [taken]
            rest = [loop for loop in rest if loop is not taken] + [given]
    rest.sort(key=lambda loop: not loop.sums)
    own = sorted(own, key=lambda loop: not loop.sums)
    own = [Loop(1, (0, 0, 0))] * (2 - len(own)) + own
    uops = np.array([base], np.int64)
    for loop in rest:
        steps = np.arange(loop.extent, dtype=np.int64)[:, None] * np.array(loop.steps, np.int64)
        uops = (uops[:, None, :] + steps).reshape(-1, 3)
    return FoldedLoops(own[0], own[1], uops)


def _merge_loops(loops: list[Loop]) -> list[Loop]:
    """Merges each loop that continues where another ends with that one."""
    loops = list(loops)
    merged = True
    while merged:
        merged = False
        for outer in loops:
            for inner in loops:
                joined = outer.extent * inner.extent
                goes_on = all(a == b * inner.extent for a, b in zip(outer.steps, inner.steps, strict=True))
                if outer is not inner and goes_on and joined <= MOST_ITERATIONS and not merged:
                    loops[loops.index(inner)] = Loop(joined, inner.steps)
                    loops.remove(outer)
                    merged = True
    return loops
