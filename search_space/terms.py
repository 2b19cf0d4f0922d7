"""Numbers that follow from sizes: found from what they are at some sizes, stated as plain data for all.

Shapes at known sizes are numbers, and what a number has to do with the sizes is lost. Of shapes at several sizes it can
be told again: a number is taken for a factor times a product of sizes plus an offset, and must be that at every
point. Points are to be so many, and so far apart, that nothing else shapes are made of agrees with it at all of them:
see `points_of`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

from search_space.ir.intervals import Span

Point = tuple[int, ...]
"""A number for each size."""

GREATEST_POWER, GREATEST_DEGREE = 2, 3


class NoTerm(ValueError):
    """Numbers that are no factor times a product of sizes plus an offset."""


@dataclass(frozen=True)
class Term:
    """`factor * size ** power * ... + offset`, a power for each size."""

    factor: int
    powers: tuple[int, ...]
    offset: int = 0

    def at(self, point: Point) -> int:
        """The number at some sizes."""
        factors = [n for n, power in zip(point, self.powers, strict=True) for _ in range(power)]
        return self.factor * math.prod(factors) + self.offset

    def plain(self, sizes: Sequence[Any]) -> Any:
        """The same as `[operator, left, right]`, where each size is what is given for it."""
        if not self.factor:
            return self.offset
        factors = [size for size, power in zip(sizes, self.powers, strict=True) for _ in range(power)]
        if self.factor != 1 or not factors:
            factors.append(self.factor)
        out = factors[0]
        for factor in factors[1:]:
            out = ["mul", out, factor]
        return ["add", out, self.offset] if self.offset else out


def term_of(numbers: Sequence[int], points: Sequence[Point]) -> Term:
    """What numbers are at some points; of several terms the one of least degree.

    Raises:
        NoTerm: none is.
    """
    if len(set(numbers)) == 1:
        return Term(0, (0,) * len(points[0]), numbers[0])
    for powers in _powers(len(points[0])):
        found = [math.prod(n**p for n, p in zip(point, powers, strict=True)) for point in points]
        least, most = min(range(len(found)), key=found.__getitem__), max(range(len(found)), key=found.__getitem__)
        if found[least] == found[most]:
            continue
        factor, rest = divmod(numbers[most] - numbers[least], found[most] - found[least])
        term = Term(factor, powers, numbers[least] - factor * found[least])
        if not rest and factor > 0 and all(term.at(p) == n for p, n in zip(points, numbers, strict=True)):
            return term
    shown = ", ".join(f"{number} at {'x'.join(map(str, at))}" for number, at in zip(numbers, points, strict=True))
    raise NoTerm(f"a number must be a factor times sizes plus an offset, but got {shown}")


@cache
def _powers(sizes: int) -> list[tuple[int, ...]]:
    """The lowest degree first."""
    every = product(range(GREATEST_POWER + 1), repeat=sizes)
    return sorted((p for p in every if 1 <= sum(p) <= GREATEST_DEGREE), key=lambda p: (sum(p), max(p)))


def points_of(sizes: Mapping[str, Span]) -> list[Point]:
    """Points that tell terms from what else extents are made of, the largest sizes last.

    Each size takes its ends, their neighbours, and one in between, where the others are at their greatest; all are at
    their least once. A quotient of a size, a remainder, and what a bound cuts off are no term of these.

    Args:
        sizes: least and greatest value of each, by name.
    """
    spans = list(sizes.values())
    greatest, least = tuple(high for _, high in spans), tuple(low for low, _ in spans)
    found = [least]
    for place, (low, high) in enumerate(spans):
        for number in (low, low + 1, round(math.sqrt(low * high)), high - 1):
            if low <= number < high:
                found.append((*greatest[:place], number, *greatest[place + 1 :]))
    return [*dict.fromkeys(p for p in found if p != greatest), greatest]
