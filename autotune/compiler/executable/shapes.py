"""Shapes that an executable takes: one, or those of all values of a few named sizes.

Graphs and schedules have known shapes. Therefore a network of open sizes is made at a few points, and their common
structure is compiled: schedules are found at some points, and sizes are divided into ranges of small cells. A network
of one shape is the set of one point without a size.

One row, one image or one token usually yields another graph: such sizes are points of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product

from search_space.ir.intervals import Span
from search_space.terms import SizePoint, choose_points

LEAST = (2, 3, 4, 6, 8, 12, 16, 32, 64, 128, 256, 1024)
"""Sizes at which schedules are found where one size is open."""
FACTOR = 16
"""Ratio of the sizes at which schedules are found where two are open; of more sizes only the smallest ones are used."""
CELLS = 8
"""Largest number of cells of each doubling of a size; no range is smaller than a cell."""


class NotOpen(ValueError):
    """A network that differs between sizes."""


@dataclass(frozen=True)
class Range:
    """Range of sizes that has its own kernels.

    Attributes:
        least, greatest: ends of the range, both inclusive.
    """

    least: SizePoint
    greatest: SizePoint

    @property
    def spans(self) -> tuple[Span, ...]:
        """Least and greatest value of each size."""
        return tuple(zip(self.least, self.greatest, strict=True))


@dataclass(frozen=True)
class ShapeSet:
    """Set of shapes: every value of named sizes, or one shape.

    Attributes:
        sizes: smallest and largest value of each size, by name; empty for a fixed shape.
        exact: points at which the network has its own graph and kernels; for a fixed shape the one point, `()`.
        samples: points at which schedules of open sizes are found, the smallest first.
        cells: small ranges, in order; if one size is open, neighbours may be merged.
    """

    sizes: Mapping[str, Span]
    exact: tuple[SizePoint, ...]
    samples: tuple[SizePoint, ...] = ()
    cells: tuple[Range, ...] = ()

    @classmethod
    def of(cls, sizes: Mapping[str, Span]) -> ShapeSet:
        """Makes the set of all values of some sizes.

        Args:
            sizes: smallest and largest value of each, by name.

        Raises:
            NotOpen: one of several sizes begins at 1, or a range has fewer than two sizes above 1.
        """
        if not sizes:
            return FIXED
        if len(sizes) == 1:
            ((name, (low, high)),) = sizes.items()
            exact, low = ((1,),) if low == 1 else (), max(low, 2)
            if high <= low:
                raise NotOpen(f"`sizes` must have several of 2 and more, but {name} ends at {high}")
            samples = [low, *(n for n in LEAST if low < n < high)]
            spans = _divide((low, high), lambda n: n + max(1, (1 << (n.bit_length() - 1)) // CELLS))
            cells = [Range((a,), (b,)) for a, b in spans]
            return cls(sizes, exact, tuple((n,) for n in samples), tuple(cells))
        if ones := [name for name, (low, _) in sizes.items() if low == 1]:
            raise NotOpen(f"of several sizes each must be at least 2, but got {ones[0]} from 1")
        factor = FACTOR if len(sizes) == 2 else math.inf
        every = [_divide(span, lambda n: n * factor) for span in sizes.values()]
        ranges = [Range(tuple(low for low, _ in spans), tuple(high for _, high in spans)) for spans in product(*every)]
        return cls(sizes, (), tuple(each.least for each in ranges), tuple(ranges))

    @property
    def least(self) -> SizePoint:
        """The point from which on sizes are open."""
        return self.samples[0] if self.samples else ()

    @property
    def greatest(self) -> SizePoint:
        """The point of the largest sizes."""
        return tuple(high for _, high in self.sizes.values())

    @property
    def points(self) -> list[SizePoint]:
        """Points from which a network at all open sizes is derived, the largest sizes last; see `choose_points`."""
        spans = zip(self.sizes, self.least, self.greatest, strict=True)
        return choose_points({name: (low, high) for name, low, high in spans})


FIXED = ShapeSet({}, ((),))
"""The set of one shape."""


def _divide(span: Span, following: Callable[[int], float]) -> list[Span]:
    """Divides a range of sizes into several; `following` returns the smallest size of the next one."""
    least, high = [span[0]], span[1]
    while (begin := following(least[-1])) <= high:
        least.append(int(begin))
    return list(zip(least, [*(n - 1 for n in least[1:]), high], strict=True))
