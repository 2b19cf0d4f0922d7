"""Ranges of sizes that have kernels of their own.

Kernels of a range are chosen at its least sizes, where their tiles fit. Of few rows each tile reads all weights, which
takes the time, so that twice as many rows want twice as high a tile; of many the best tiles are the same. One row, one
image, one token make another graph more often than not, and have a range for themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

from autotune.executable.opening import NotOpen, Range
from search_space.ir.intervals import Span

LEAST = (2, 4, 8, 16, 128, 1024)
"""From which on there are ranges where one size is open."""
FACTOR = 16
"""Between the least sizes of neighbouring ranges where two are open; more are not divided."""


def ranges_of(sizes: Mapping[str, Span]) -> list[Range]:
    """Ranges that together have all sizes.

    Args:
        sizes: least and greatest value of each, by name.

    Raises:
        NotOpen: a size of several that begins at 1.
    """
    if len(sizes) == 1:
        ((low, high),) = sizes.values()
        known = [Range((1,), (1,))] if low == 1 else []
        least = [max(low, 2), *(n for n in LEAST if max(low, 2) < n <= high)]
        return known + [Range((a,), (b - 1,)) for a, b in zip(least, [*least[1:], high + 1], strict=True)]
    if ones := [name for name, (low, _) in sizes.items() if low == 1]:
        raise NotOpen(f"of several sizes each must be at least 2, but got {ones[0]} from 1")
    factor = FACTOR if len(sizes) == 2 else None
    every = [_divided(span, factor) for span in sizes.values()]
    return [Range(tuple(low for low, _ in spans), tuple(high for _, high in spans)) for spans in product(*every)]


def _divided(span: Span, factor: int | None) -> Sequence[Span]:
    low, high = span
    if factor is None:
        return [span]
    least = [low]
    while least[-1] * factor <= high:
        least.append(least[-1] * factor)
    return list(zip(least, [*(n - 1 for n in least[1:]), high], strict=True))
