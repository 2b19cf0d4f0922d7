"""The fastest choice of types of kernels whose noise keeps a bound.

Types are numbered from 0, float32, to the narrowest. Numbers are stored or multiplied in a type where one of some
kernels is in it (`Place`), which saves time, or costs some where they have to be converted, and adds noise. So seconds
and noise are sums over places, each of which is there or not, and a choice is a multiple-choice knapsack (Sinha and
Zoltners, "The Multiple-Choice Knapsack Problem", 1979) whose items share weights and worths. It is searched by taking
what saves most for its noise, by giving up of the whole what saves least for it, and by exchanging pairs until nothing
is gained.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Bits = NDArray[np.bool_]
Choice = NDArray[np.int64]
"""(kernels,): the type of each; 0 is float32."""

LADDER = 60
"""Decibels above the wanted ones from which bounds are laxed one by one."""

Move = tuple[int, int]
"""A kernel, and the type that it is brought to."""

TINY = 1e-12
"""Part of all seconds below which nothing is gained."""


@dataclass(frozen=True, eq=False)
class Problem:
    """What types there are for kernels.

    Attributes:
        kernels: their names.
        at: (places, kernels, types), whether a kernel in that type makes a place be there. Those of type 0 are places
            that are there as long as a kernel has not left float32, such as what is stored for it.
        saved: (places,), seconds that are saved by a place; below 0 where it costs some.
        noise: (places, outputs), over signal, in power.
        may: (kernels, types), which may be chosen; float32 may always.
    """

    kernels: Sequence[str]
    at: NDArray[np.bool_]
    saved: NDArray[np.float64]
    noise: NDArray[np.float64]
    may: NDArray[np.bool_]

    def __post_init__(self) -> None:
        places, kernels, types = self.at.shape
        wanted = (len(self.kernels), (kernels, types), (places,), (places,))
        if (kernels, self.may.shape, self.saved.shape, self.noise.shape[:1]) != wanted:
            raise ValueError(
                f"`at` must be (places, kernels, types), but got at={self.at.shape}, kernels={len(self.kernels)}, "
                f"may={self.may.shape}, saved={self.saved.shape}, noise={self.noise.shape}"
            )
        if not self.may[:, 0].all():
            raise ValueError("`may` must allow type 0 for all kernels, but does not")

    @property
    def full(self) -> Choice:
        """All in float32."""
        return np.zeros(len(self.kernels), np.int64)

    def all_in(self, kind: int) -> Choice:
        """Each kernel in a type, or in the narrowest of the wider ones that it may be in."""
        types = np.arange(self.may.shape[1])
        found: Choice = np.where(self.may & (types <= kind), types, 0).max(1, initial=0)
        return found

    def there(self, choice: Choice) -> Bits:
        """(places,): which are there."""
        return np.asarray(self.items[self.items_of(choice)].any(0))

    @cached_property
    def items(self) -> Bits:
        """(kernels x types, places): `at`, an item of the knapsack a row."""
        places, kernels, types = self.at.shape
        return np.ascontiguousarray(self.at.reshape(places, kernels * types).T)

    def items_of(self, choice: Choice) -> Choice:
        """(kernels,): rows of `items` that are chosen."""
        return np.asarray(np.arange(len(choice)) * self.at.shape[2] + choice)

    @cached_property
    def before(self) -> float:
        """Seconds saved by the places that are there with all in float32, from which others count."""
        return float(self.saved[self.there(self.full)].sum())

    def totals(self, choice: Choice) -> tuple[float, NDArray[np.float64]]:
        """Seconds saved by a choice beside all in float32, and the noise of each output."""
        there = self.there(choice)
        return float(self.saved[there].sum()) - self.before, self.noise[there].sum(0)


@dataclass(frozen=True, eq=False)
class Point:
    """A choice, and what it is estimated to come to.

    Attributes:
        choice: of types.
        saved: seconds.
        noise: over signal, of the worst output.
    """

    choice: Choice
    saved: float
    noise: float

    @property
    def decibels(self) -> float:
        """Signal to noise of the worst output; infinite where nothing is rounded."""
        return -10 * math.log10(self.noise) if self.noise > 0 else math.inf


def point_of(problem: Problem, choice: Choice) -> Point:
    """A choice with its totals."""
    saved, noise = problem.totals(choice)
    return Point(choice, saved, float(noise.max(initial=0.0)))


def assign(problem: Problem, noise: float) -> Choice:
    """The fastest choice that is found with no more than `noise` over signal in any output.

    Raises:
        ValueError: a bound that is not above 0.
    """
    return front(problem, noise)[-1].choice


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
    best = problem.full
    found = [point_of(problem, best)]
    for step in [*steps, decibels]:
        best = _better(_Search(problem, 10 ** (-step / 10)), best)
        point = point_of(problem, best)
        if point.saved > found[-1].saved:
            found.append(point)
    return found


def _better(search: _Search, known: Choice) -> Choice:
    problem = search.problem
    wholes = [problem.all_in(kind) for kind in range(1, problem.may.shape[1])]
    starts = [search.filled(start) for start in (known, problem.full, *map(search.emptied, wholes))]
    distinct = list({choice.tobytes(): choice for choice in starts}.values())
    return max((search.exchanged(start) for start in distinct), key=lambda choice: problem.totals(choice)[0])


class _Search:
    """Moves within one bound. Of noise only places count that are there; kernels share them."""

    def __init__(self, problem: Problem, noise: float) -> None:
        self.problem = problem
        self._weights = np.hstack([problem.saved[:, None], problem.noise / noise])  # (places, 1 + outputs)
        self._least = TINY * float(np.abs(problem.saved).sum())
        self._items = problem.items.astype(np.float64)
        several = problem.at & (problem.at.sum(2, keepdims=True) > 1)  # places of a kernel in more than one type
        self._place, self._kernel, kind = np.nonzero(several)
        self._item = self._kernel * problem.at.shape[2] + kind

    def changes(self, choice: Choice) -> NDArray[np.float64]:  # (kernels, types, 1 + outputs)
        """By bringing each kernel to each type: seconds saved more, and noise added as a share of the bound."""
        mine = self._items[self.problem.items_of(choice)]  # (kernels, places)
        counts = mine.sum(0)
        alone = self._weights * (counts == 1)[:, None]  # of places that are there by one kernel
        found = self._items @ (self._weights * (counts == 0)[:, None])
        if len(self._item):  # what a kernel alone keeps there in its new type, too
            stays = mine[self._kernel, self._place][:, None] * alone[self._place]
            np.add.at(found, self._item, stays)
        lost = mine @ alone
        changes: NDArray[np.float64] = found.reshape(*self.problem.may.shape, -1) - lost[:, None]
        changes[np.arange(len(choice)), choice] = 0.0
        return changes

    def sums(self, choice: Choice) -> NDArray[np.float64]:  # (1 + outputs,)
        """Seconds saved, and noise as a share of the bound."""
        return np.asarray(self._weights[self.problem.there(choice)].sum(0))

    def filled(self, choice: Choice) -> Choice:
        """With the changes made that save most for their noise, one by one."""
        found = choice.copy()
        while True:
            changes, sums = self.changes(found), self.sums(found)
            legal = self._keeps(sums, changes) & (changes[:, :, 0] > self._least)
            if not legal.any():
                return found
            noise = changes[:, :, 1:].max(2, initial=0.0)
            rate = np.where(legal, changes[:, :, 0] / np.maximum(noise, TINY), -np.inf)
            kernel, kind = divmod(int(np.argmax(rate)), rate.shape[1])
            found[kernel] = kind

    def emptied(self, choice: Choice) -> Choice:
        """The choice with kernels in wider types, those that lose least for the noise they lose, until it keeps the
        bound."""
        found = choice.copy()
        wider = np.arange(self.problem.may.shape[1])
        while (sums := self.sums(found))[1:].max(initial=0.0) > 1 and found.any():
            changes = self.changes(found)
            worst = 1 + int(np.argmax(sums[1:]))
            lost, less = -changes[:, :, 0], -changes[:, :, worst]
            legal = self.problem.may & (wider < found[:, None])
            rate = np.where(legal, np.maximum(lost, self._least) / np.maximum(less, TINY), np.inf)
            kernel, kind = divmod(int(np.argmin(rate)), rate.shape[1])
            found[kernel] = kind
        return found

    def exchanged(self, choice: Choice) -> Choice:
        """With one or two kernels at a time in other types as long as that saves seconds."""
        found = choice.copy()
        while True:
            moves = [self._best_move(found, ())]
            if moves[0][0] <= self._least:
                may = self.problem.may.copy()
                may[np.arange(len(found)), found] = False
                firsts = zip(*(axis.tolist() for axis in np.nonzero(may)), strict=True)
                moves = [self._best_move(found, (first,)) for first in firsts]
            gain, changed = max(moves, key=lambda move: move[0], default=(0.0, ()))
            if gain <= self._least:
                return found
            for kernel, kind in changed:
                found[kernel] = kind

    def _best_move(self, choice: Choice, before: tuple[Move, ...]) -> tuple[float, tuple[Move, ...]]:
        """Seconds gained by the best change after some others, and all changes."""
        start, tried = self.sums(choice), choice.copy()
        for kernel, kind in before:
            tried[kernel] = kind
        sums, changes = self.sums(tried), self.changes(tried)
        gains = np.where(self._keeps(sums, changes), sums[0] + changes[:, :, 0] - start[0], -np.inf)
        if not gains.size:
            return 0.0, ()
        kernel, kind = divmod(int(np.argmax(gains)), gains.shape[1])
        return float(gains[kernel, kind]), (*before, (kernel, kind))

    def _keeps(self, sums: NDArray[np.float64], changes: NDArray[np.float64]) -> Bits:
        """(kernels, types): which changes are allowed, and keep the bound."""
        kept: Bits = self.problem.may & ((sums[1:] + changes[:, :, 1:]).max(2, initial=0.0) <= 1)
        return kept
