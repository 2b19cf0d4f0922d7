"""The fastest choice of kernels in 16 bits whose noise keeps a bound.

Numbers are in 16 bits where one of the kernels at their place is (`Place`): that saves time, or costs some where they
have to be converted, and adds noise. So seconds and noise are sums over places, each of which is there or not, and a
choice is a 0-1 knapsack whose items share weights and worths. It is searched by adding what saves most for its noise,
by taking out of the whole what saves least for it, and by exchanging pairs until nothing is gained.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Bits = NDArray[np.bool_]
"""(kernels,): which are in 16 bits."""

LADDER = 60
"""Decibels above the wanted ones from which bounds are laxed one by one."""

TINY = 1e-12
"""Part of all seconds below which nothing is gained."""


@dataclass(frozen=True, eq=False)
class Problem:
    """What may be in 16 bits.

    Attributes:
        kernels: their names.
        at: (places, kernels), whether a kernel in 16 bits puts the numbers of a place there.
        saved: (places,), seconds that 16 bits save there; below 0 where they cost some.
        noise: (places, outputs), over signal, in power.
    """

    kernels: Sequence[str]
    at: NDArray[np.bool_]
    saved: NDArray[np.float64]
    noise: NDArray[np.float64]

    def __post_init__(self) -> None:
        places, kernels = self.at.shape
        if (kernels, self.saved.shape, self.noise.shape[:1]) != (len(self.kernels), (places,), (places,)):
            raise ValueError(
                f"`at` must be (places, kernels), but got at={self.at.shape}, kernels={len(self.kernels)}, "
                f"saved={self.saved.shape}, noise={self.noise.shape}"
            )

    def totals(self, narrow: Bits) -> tuple[float, NDArray[np.float64]]:
        """Seconds saved by a choice, and the noise of each output."""
        there = self.at[:, narrow].any(1)
        return float(self.saved[there].sum()), self.noise[there].sum(0)


@dataclass(frozen=True, eq=False)
class Point:
    """A choice, and what it is estimated to come to.

    Attributes:
        narrow: the choice.
        saved: seconds.
        noise: over signal, of the worst output.
    """

    narrow: Bits
    saved: float
    noise: float

    @property
    def decibels(self) -> float:
        """Signal to noise of the worst output; infinite where nothing is rounded."""
        return -10 * math.log10(self.noise) if self.noise > 0 else math.inf


def point_of(problem: Problem, narrow: Bits) -> Point:
    """A choice with its totals."""
    saved, noise = problem.totals(narrow)
    return Point(narrow, saved, float(noise.max(initial=0.0)))


def assign(problem: Problem, noise: float) -> Bits:
    """The fastest choice that is found with no more than `noise` over signal in any output.

    Raises:
        ValueError: a bound that is not above 0.
    """
    return front(problem, noise)[-1].narrow


def front(problem: Problem, noise: float) -> list[Point]:
    """Choices from all in float32 to the fastest of at most `noise`, each faster and noisier than the one before.

    They are found for one bound after the other, a decibel apart, and none is given up for a slower one: so no laxer
    bound has a slower choice.

    Raises:
        ValueError: a bound that is not above 0.
    """
    if not noise > 0:
        raise ValueError(f"`noise` must be above 0, but got noise={noise}")
    decibels = -10 * math.log10(noise)
    steps = [float(n) for n in range(math.ceil(decibels + LADDER), math.floor(decibels), -1) if n > decibels]
    best = np.zeros(len(problem.kernels), bool)
    found = [point_of(problem, best)]
    for step in [*steps, decibels]:
        best = _better(_Search(problem, 10 ** (-step / 10)), best)
        point = point_of(problem, best)
        if point.saved > found[-1].saved:
            found.append(point)
    return found


def _better(search: _Search, known: Bits) -> Bits:
    starts = [search.filled(known), search.filled(np.zeros_like(known)), search.filled(search.emptied())]
    distinct = list({narrow.tobytes(): narrow for narrow in starts}.values())
    return max((search.exchanged(start) for start in distinct), key=lambda narrow: search.problem.totals(narrow)[0])


class _Search:
    """Moves within one bound. Of noise only places count that are there; kernels share them."""

    def __init__(self, problem: Problem, noise: float) -> None:
        self.problem = problem
        self._weights = np.hstack([problem.saved[:, None], problem.noise / noise])  # (places, 1 + outputs)
        self._least = TINY * float(np.abs(problem.saved).sum())
        self._at = problem.at.astype(np.float64)

    def changes(self, narrow: Bits) -> NDArray[np.float64]:  # (kernels, 1 + outputs)
        """By flipping each kernel: seconds saved more, and noise added as a share of the bound."""
        counts = self._at @ narrow
        on = self._at.T @ (self._weights * (counts == 0)[:, None])
        off = self._at.T @ (self._weights * (counts == 1)[:, None])
        found: NDArray[np.float64] = np.where(narrow[:, None], -off, on)
        return found

    def sums(self, narrow: Bits) -> NDArray[np.float64]:  # (1 + outputs,)
        """Seconds saved, and noise as a share of the bound."""
        there = self.problem.at[:, narrow].any(1)
        return np.asarray(self._weights[there].sum(0))

    def filled(self, narrow: Bits) -> Bits:
        """With the kernels added that save most for their noise, one by one."""
        found = narrow.copy()
        while True:
            changes, sums = self.changes(found), self.sums(found)
            legal = ~found & self._keeps(sums, changes) & (changes[:, 0] > self._least)
            if not legal.any():
                return found
            noise = changes[:, 1:].max(1, initial=0.0)
            rate = np.where(legal, changes[:, 0] / np.maximum(noise, TINY), -np.inf)
            found[int(np.argmax(rate))] = True

    def emptied(self) -> Bits:
        """All, but for those that save least for their noise, as many as keep the bound."""
        found = np.ones(len(self.problem.kernels), bool)
        while (sums := self.sums(found))[1:].max(initial=0.0) > 1:
            changes = self.changes(found)
            worst = 1 + int(np.argmax(sums[1:]))
            lost, less = -changes[:, 0], -changes[:, worst]
            rate = np.where(found, np.maximum(lost, self._least) / np.maximum(less, TINY), np.inf)
            found[int(np.argmin(rate))] = False
        return found

    def exchanged(self, narrow: Bits) -> Bits:
        """With one or two kernels at a time flipped as long as that saves seconds."""
        found = narrow.copy()
        while True:
            moves = [self._best_flip(found, ())]
            if moves[0][0] <= self._least:
                moves = [self._best_flip(found, (first,)) for first in range(len(found))]
            gain, flips = max(moves, key=lambda move: move[0], default=(0.0, ()))
            if gain <= self._least:
                return found
            found[list(flips)] ^= True

    def _best_flip(self, narrow: Bits, before: tuple[int, ...]) -> tuple[float, tuple[int, ...]]:
        """Seconds gained by the best flip after some others, and all flips."""
        start, tried = self.sums(narrow), narrow.copy()
        tried[list(before)] ^= True
        sums, changes = self.sums(tried), self.changes(tried)
        gains = np.where(self._keeps(sums, changes), sums[0] + changes[:, 0] - start[0], -np.inf)
        if not len(gains):
            return 0.0, ()
        last = int(np.argmax(gains))
        return float(gains[last]), (*before, last)

    @staticmethod
    def _keeps(sums: NDArray[np.float64], changes: NDArray[np.float64]) -> Bits:
        kept: Bits = (sums[1:] + changes[:, 1:]).max(1, initial=0.0) <= 1
        return kept
