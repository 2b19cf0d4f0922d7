"""Functions as polynomials over 16 intervals, whose coefficients a permutation of a register looks up.

An interval lies around each of the places 0, 1, ..., 15, the argument times `Table.scale`. An interval's polynomial
takes the distance from its place, and interpolates the function at the Chebyshev nodes of the interval. Its error is
within twice the least possible one (Trefethen, Approximation Theory and Approximation Practice, 2013). The polynomial
around 0 is 0 at 0, so that errors are relative there. Beyond the last place the function has the value of that place.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

INTERVALS = 16
"""Intervals, each with a polynomial: a register of AVX-512 holds one coefficient of each."""


@dataclass(frozen=True)
class Table:
    """A function of numbers that are not negative, and 0 at 0.

    Attributes:
        function: function in float64.
        scale: intervals per unit of the argument.
        degree: degree of each polynomial.
    """

    function: Callable[[float], float]
    scale: float
    degree: int

    @cached_property
    def coefficients(self) -> tuple[tuple[float, ...], ...]:
        """Coefficients by power, highest first; for each power those of the 16 polynomials."""
        places = [self._polynomial(place) for place in range(INTERVALS)]
        return tuple(zip(*places, strict=True))

    def _polynomial(self, position: int) -> list[float]:
        """Computes the coefficients around a place, highest power first."""

        def at(distance: float) -> float:
            return self.function((position + distance) / self.scale)

        if position:
            # The end of the last interval is its place, and what lies beyond has its value: that is the function's.
            last = position == INTERVALS - 1
            fixed = [0.0] if last else []
            nodes = chebyshev(-0.5, 0.0 if last else 0.5, self.degree + 1 - len(fixed)) + fixed
            found = interpolate(nodes, [at(d) for d in nodes])
            return [*found[:-1], at(0.0)] if last else found
        nodes = chebyshev(0.0, 0.5, self.degree)
        return [*interpolate(nodes, [at(d) / d for d in nodes]), 0.0]


def chebyshev(low: float, high: float, count: int) -> list[float]:
    """Returns the Chebyshev nodes of an interval."""
    middle, half = (low + high) / 2, (high - low) / 2
    return [middle + half * math.cos(math.pi * (i + 0.5) / count) for i in range(count)]


def interpolate(nodes: list[float], values: list[float]) -> list[float]:
    """Computes the polynomial through some points, highest power first (Newton's divided differences)."""
    differences = list(values)
    for order in range(1, len(nodes)):
        for i in range(len(nodes) - 1, order - 1, -1):
            differences[i] = (differences[i] - differences[i - 1]) / (nodes[i] - nodes[i - order])
    coefficients: list[float] = []
    for node, difference in zip(reversed(nodes), reversed(differences), strict=True):
        # found * (x - node) + difference
        shifted, taken = [*coefficients, 0.0], [0.0, *(c * node for c in coefficients)]
        coefficients = [a - b for a, b in zip(shifted, taken, strict=True)]
        coefficients[-1] += difference
    return coefficients


def _gelu_defect(t: float) -> float:
    """Computes max(x, 0) minus the Gaussian error linear unit at x = -t and t; 0 from 6 on, where it is 6e-9."""
    return t * math.erfc(t * math.sqrt(0.5)) / 2 if t < 6 else 0.0


ERF, ERF_SHORT = Table(math.erf, 3.5, 5), Table(math.erf, 3.5, 3)
TANH, TANH_SHORT = Table(math.tanh, 1.5625, 7), Table(math.tanh, 1.5625, 4)
GELU, GELU_SHORT = Table(_gelu_defect, 2.5, 5), Table(_gelu_defect, 2.5, 4)
"""Tables for float32, and for a result that is rounded to bfloat16: it needs a lower degree."""
