"""Numbers that depend on sizes: derived from their values at some sizes, as plain data for all sizes.

Shapes at known sizes are numbers, and the dependence of a number on the sizes is lost. Shapes at several sizes show it
again: a number is assumed to be a factor times a product of sizes plus an offset, and must agree at every point. The
points are chosen so that no other function in shapes agrees with a term at all of them: see `choose_points`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

from search_space.ir.intervals import Span

SizePoint = tuple[int, ...]
"""A number for each size."""

GREATEST_POWER, GREATEST_DEGREE = 2, 3
"""Greatest power of one size in a term, and greatest sum of its powers."""


class NoTerm(ValueError):
    """Numbers that are no factor times a product of sizes plus an offset."""


@dataclass(frozen=True)
class Term:
    """`factor * size ** power * ... + offset`, a power for each size."""

    factor: int
    powers: tuple[int, ...]
    offset: int = 0

    def at(self, point: SizePoint) -> int:
        """Evaluates the term at a point."""
        factors = [n for n, power in zip(point, self.powers, strict=True) for _ in range(power)]
        return self.factor * math.prod(factors) + self.offset

    def plain(self, sizes: Sequence[Any]) -> Any:
        """Converts the term to nested `[operator, left, right]`, with the given data in place of each size."""
        if not self.factor:
            return self.offset
        factors = [size for size, power in zip(sizes, self.powers, strict=True) for _ in range(power)]
        if self.factor != 1 or not factors:
            factors.append(self.factor)
        out = factors[0]
        for factor in factors[1:]:
            out = ["mul", out, factor]
        return ["add", out, self.offset] if self.offset else out


def fit_term(numbers: Sequence[int], points: Sequence[SizePoint]) -> Term:
    """Finds the term that has these values at these points; of several terms the one of least degree.

    Raises:
        NoTerm: no term has these values.
    """
    if len(set(numbers)) == 1:
        return Term(0, (0,) * len(points[0]), numbers[0])
    for powers in _powers(len(points[0])):
        values = [math.prod(n**p for n, p in zip(point, powers, strict=True)) for point in points]
        least, most = min(range(len(values)), key=values.__getitem__), max(range(len(values)), key=values.__getitem__)
        if values[least] == values[most]:
            continue
        factor, rest = divmod(numbers[most] - numbers[least], values[most] - values[least])
        term = Term(factor, powers, numbers[least] - factor * values[least])
        if not rest and factor > 0 and all(term.at(p) == n for p, n in zip(points, numbers, strict=True)):
            return term
    shown = ", ".join(f"{number} at {'x'.join(map(str, at))}" for number, at in zip(numbers, points, strict=True))
    raise NoTerm(f"a number must be a factor times sizes plus an offset, but got {shown}")


@cache
def _powers(sizes: int) -> list[tuple[int, ...]]:
    """Lists the powers of each size in monomials of degree 1 to `GREATEST_DEGREE`, the lowest degree first."""
    every = product(range(GREATEST_POWER + 1), repeat=sizes)
    return sorted((p for p in every if 1 <= sum(p) <= GREATEST_DEGREE), key=lambda p: (sum(p), max(p)))


def choose_points(sizes: Mapping[str, Span]) -> list[SizePoint]:
    """Returns points that distinguish terms from other functions of the sizes, the largest sizes last.

    Each size takes its ends, their neighbours, and one value in between, while the other sizes are at their greatest;
    once all are at their least. Quotients, remainders and clipped sizes agree with no term at these points.

    Args:
        sizes: least and greatest value of each size, by name.
    """
    spans = list(sizes.values())
    greatest, least = tuple(high for _, high in spans), tuple(low for low, _ in spans)
    points = [least]
    for place, (low, high) in enumerate(spans):
        for number in (low, low + 1, round(math.sqrt(low * high)), high - 1):
            if low <= number < high:
                points.append((*greatest[:place], number, *greatest[place + 1 :]))
    return [*dict.fromkeys(p for p in points if p != greatest), greatest]
