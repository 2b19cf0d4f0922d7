"""Ranges of sizes that have kernels of their own.

Schedules are found at a few sizes. Each holds from the size on that it was found at, as its tiles fit in there, and how
long it takes at any is estimated: a tile of 8 rows computes 16 for 9, one of 5 computes 10. So sizes are divided into
few ranges, each with the schedules that are estimated best there, such that all sizes together lose the least: by
dynamic programming, as segments of a curve are (Bellman, 1961).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autotune.compiler.executable.shapes import Range
from search_space.terms import Point

MOST = 16
"""Ranges of an open size."""
LEAST_GAIN = 0.001
"""Share of the time that one more range must save."""
COPY = 0.005
"""Share of the time that another copy of all weights must save; kernels that pack in their own ways have one each."""
DOUBT = 0.02
"""Share of its time by which a schedule is taken to be slower for each doubling from where it was found: what is
searched at a size is the best there of what the estimate tells apart, and of what it does not."""

NOT_AT_ALL = 1e6
"""Loss of a schedule that does not hold."""

Seconds = NDArray[np.float64]


@dataclass(frozen=True)
class Packed:
    """How a kernel packs its constants.

    Attributes:
        how: equal for kernels that pack alike.
        nbytes: of what is packed.
    """

    how: str
    nbytes: int


def divided(
    cells: Sequence[Range], seconds: Seconds, counts: NDArray[np.int64], packed: Sequence[Sequence[Packed]]
) -> list[tuple[Range, list[int]]]:
    """Ranges, and which schedule each kernel has in each.

    Args:
        cells: of `ShapeSet`.
        seconds: estimated, (kernels, schedules, cells); infinite where a schedule does not hold. Of each kernel one
            holds in each cell.
        counts: how often each kernel is called: (kernels,).
        packed: by kernel and schedule.
    """
    weights = np.array([sum(math.log((b + 1) / a) for a, b in each.spans) for each in cells])
    weights /= weights.sum()
    losses = _losses(seconds, counts)  # (kernels, schedules, cells)
    once = sum(min(p.nbytes for p in each) * count for each, count in zip(packed, counts.tolist(), strict=True))
    for kernel, (each, count) in enumerate(zip(packed, counts.tolist(), strict=True)):
        dropped = _rare(losses[kernel] * weights, each, COPY * count / max(1, once))
        losses[kernel, dropped] = NOT_AT_ALL
    if len(cells[0].least) > 1:
        return [(cell, losses[:, :, place].argmin(1).tolist()) for place, cell in enumerate(cells)]
    sums = np.concatenate([np.zeros((*losses.shape[:2], 1)), (losses * weights).cumsum(2)], 2)
    costs = sum((_runs(kernel).min(0) for kernel in sums), np.zeros(()))  # (begin, end)
    costs[np.tril_indices(len(costs))] = np.inf
    ends = _ends(costs)
    found = []
    for begin, end in zip([0, *ends], ends, strict=False):
        whole = Range(cells[begin].least, cells[end - 1].greatest)
        found.append((whole, (sums[:, :, end] - sums[:, :, begin]).argmin(1).tolist()))
    return found


def _runs(sums: Seconds) -> Seconds:
    """From one cell up to another, of sums up to each: (schedules, cells + 1) → (schedules, begin, end)."""
    return sums[:, None, :] - sums[:, :, None]


def doubted(seconds: Seconds, found_at: Point, cells: Sequence[Range]) -> Seconds:
    """Estimates (cells,) of a schedule that was found at some sizes."""
    over = [np.log2(np.divide(cell.least, found_at)).sum() for cell in cells]
    return seconds * (1 + DOUBT * np.maximum(over, 0))


def _rare(losses: Seconds, packed: Sequence[Packed], price: float) -> list[int]:
    """Schedules whose way of packing is not worth its memory: the others do as well, or nearly so.

    Args:
        losses: of the schedules of a kernel: (schedules, cells).
        packed: by schedule.
        price: of a byte, as a loss.
    """
    kept = {p.how: p.nbytes for p in packed}

    def cost(ways: Mapping[str, int]) -> float:
        rows = [number for number, p in enumerate(packed) if p.how in ways]
        return float(losses[rows].min(0).sum()) + price * sum(ways.values())

    while len(kept) > 1:
        fewer = [{how: nbytes for how, nbytes in kept.items() if how != left} for left in kept]
        least = min(fewer, key=cost)
        if cost(least) > cost(kept):
            break
        kept = least
    return [number for number, p in enumerate(packed) if p.how not in kept]


def _losses(seconds: Seconds, counts: NDArray[np.int64]) -> Seconds:
    """Each kernel's share of the time of all by the fastest schedules; large where a schedule does not hold."""
    of_all = (seconds.min(1) * counts[:, None]).sum(0)  # (cells,)
    return np.where(np.isinf(seconds), NOT_AT_ALL, seconds * counts[:, None, None] / of_all)


def _ends(costs: Seconds) -> list[int]:
    """Where ranges end, of so many that one more gains nothing to speak of.

    Args:
        costs: of a range from one cell up to another, shares of the time: (cells + 1, cells + 1).
    """
    best, before = [costs[0]], [np.zeros(len(costs), np.int64)]
    while len(best) < min(MOST, len(costs) - 1):
        through = best[-1][:, None] + costs
        before.append(through.argmin(0))
        best.append(through.min(0))
    values = np.array([each[-1] for each in best])
    enough = values <= values.min() + LEAST_GAIN * np.arange(len(values))[::-1]
    ends, at = [], len(costs) - 1
    for number in range(int(enough.argmax()), -1, -1):
        ends.append(at)
        at = int(before[number][at])
    return ends[::-1]
