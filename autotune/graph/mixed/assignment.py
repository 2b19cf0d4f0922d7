"""The fastest choice of types of kernels whose noise keeps a bound.

Types are numbered from 0, float32, to the narrowest. Numbers are stored or multiplied in a type where one of some
kernels is in it (`Place`), which saves time, or costs some where they have to be converted, and adds noise. So seconds
and noise are sums over places, each of which is there or not, and a choice is a multiple-choice knapsack (Sinha and
Zoltners, "The Multiple-Choice Knapsack Problem", 1979) whose items share weights and worths. It is solved exactly, as a
mixed-integer linear program by HiGHS (Huangfu and Hall, "Parallelizing the dual revised simplex method", 2018).

A choice depends on the problem alone: the solver draws no random numbers, and is bounded by nodes of its search, not by
time. Of choices that save the same within `TIE`, it is the one with the least sum of type numbers, so that what gains
nothing stays in float32; of these, the one whose narrow kernels come first.
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

TIE = 1e-8
"""Part of the seconds of all places by which savings must differ; solvers tell no less apart."""

NODES = 20_000
"""Nodes of a search, after which the best choice by then is taken; networks have needed fewer than ten."""

PATIENCE = 120.0
"""Seconds after which it is taken, too, in case that nodes take unusually long."""

_SCALE = 1e3
"""Sum of all savings as the solver is given them, beside its absolute tolerance of 1e-6."""
_MARGIN = 2e-6
"""By which a bound is tightened where a choice passes it, by the solver's tolerance."""
_ROUNDING = 1e-9
"""Part of a bound by which sums of floats may pass it."""


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
        return np.asarray(self.at[:, np.arange(len(choice)), choice].any(1))

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
    """Returns the fastest choice with no more than `noise` over signal in any output, see the module for ties.

    Where the solver is stopped by `NODES` or `PATIENCE` it is the best choice by then; without any, all in float32.

    Raises:
        ValueError: a bound that is not above 0.
    """
    if not noise > 0:
        raise ValueError(f"`noise` must be above 0, but got noise={noise}")
    for share in (1.0, 1.0 - _MARGIN):
        program = _Program(problem, noise * share)
        choice = program.fastest()
        if choice is None or (problem.totals(choice)[1] <= noise * (1 + _ROUNDING)).all():
            break
    if choice is None or not problem.totals(choice)[0] > 0:
        return problem.full
    widest = program.widest(problem.totals(choice)[0])
    if widest is None or not (problem.totals(widest)[1] <= noise * (1 + _ROUNDING)).all():
        return choice
    return widest


def front(problem: Problem, noise: float) -> list[Point]:
    """Returns choices from all in float32 to the fastest of at most `noise`, each faster and noisier than the last.

    They are the fastest of bounds that are a decibel apart.

    Raises:
        ValueError: a bound that is not above 0.
    """
    point = point_of(problem, assign(problem, noise))
    points, decibels = [point], math.floor(-10 * math.log10(noise)) + 1
    while point.choice.any():
        if math.isinf(point.decibels):
            point = point_of(problem, problem.full)
        else:
            decibels = max(decibels, math.floor(point.decibels) + 1)  # up to its own noise a choice stays the fastest
            point = point_of(problem, assign(problem, 10 ** (-decibels / 10)))
            decibels += 1
        if point.saved >= points[-1].saved:
            points.pop()
        points.append(point)
    return points[::-1]


class _Program:
    """Integer program of a problem within a bound.

    Unknowns are `x`, (kernels, types), 1 where a kernel is in a type, and `y`, (places,), 1 where a place is there,
    which follows from `x`. Places of the same kernels in the same types are one.
    """

    def __init__(self, problem: Problem, noise: float) -> None:
        places, kernels, types = problem.at.shape
        rows = (problem.at & problem.may).reshape(places, kernels * types)
        distinct, merged = np.unique(rows, axis=0, return_inverse=True)
        self.at = distinct.reshape(-1, kernels, types)  # (distinct, kernels, types)
        self.may = problem.may
        saved, shares = np.zeros(len(distinct)), np.zeros((len(distinct), problem.noise.shape[1]))
        np.add.at(saved, merged.reshape(-1), problem.saved)
        np.add.at(shares, merged.reshape(-1), problem.noise / noise)
        self.unit = _SCALE / (float(np.abs(problem.saved).sum()) or 1.0)
        self.before = problem.before
        self.saved = saved * self.unit
        self.loud: Bits = np.asarray(np.any(shares > 1 + _ROUNDING, axis=1))  # these cannot be there
        self.shares = np.where(self.loud[:, None], 0.0, shares)

    def fastest(self) -> Choice | None:
        """Solves for the greatest savings."""
        return self._solved(np.zeros(self.may.shape), -self.saved, -np.inf)

    def widest(self, saved: float) -> Choice | None:
        """Solves for the widest types, and the first kernels, of choices that save so many seconds."""
        kernels, types = self.may.shape
        later = 1 + 1e-3 * (np.arange(kernels) / max(1, kernels)) ** 2
        weights = _SCALE * later[:, None] * np.arange(types)
        least = (saved + self.before) * self.unit - TIE * _SCALE
        return self._solved(weights, np.zeros(len(self.saved)), least)

    def _solved(self, x_cost: NDArray[np.float64], y_cost: NDArray[np.float64], least: float) -> Choice | None:
        from scipy import sparse  # it takes long to import, and most networks are in one type
        from scipy.optimize import Bounds, LinearConstraint, milp

        distinct, kernels, types = self.at.shape
        count = kernels * types
        if not count:
            return None
        place, kernel = np.nonzero(self.at.any(2))  # y is at least the sum of a kernel's x there
        lower = sparse.csr_matrix(
            (
                self.at[place, kernel].reshape(-1).astype(float),
                (
                    np.repeat(np.arange(len(place)), types),
                    (kernel[:, None] * types + np.arange(types)).reshape(-1),
                ),
            ),
            shape=(len(place), count),
        )
        picked = sparse.csr_matrix((np.ones(len(place)), (np.arange(len(place)), place)), shape=(len(place), distinct))
        every = sparse.csr_matrix(self.at.reshape(distinct, count).astype(float))  # and at most the sum of all
        one = sparse.kron(sparse.identity(kernels), np.ones((1, types)))
        blocks = [
            (sparse.hstack([one, sparse.csr_matrix((kernels, distinct))]), 1.0, 1.0),
            (sparse.hstack([lower, -picked]), -np.inf, 0.0),
            (sparse.hstack([-every, sparse.identity(distinct)]), -np.inf, 0.0),
            (sparse.hstack([sparse.csr_matrix((self.shares.shape[1], count)), self.shares.T]), -np.inf, 1.0),
            (sparse.hstack([sparse.csr_matrix((1, count)), self.saved[None]]), least, np.inf),
        ]
        answer = milp(
            np.concatenate([x_cost.reshape(-1), y_cost]),
            integrality=np.concatenate([np.ones(count), np.zeros(distinct)]),
            bounds=Bounds(0.0, np.concatenate([self.may.reshape(-1).astype(float), 1.0 - self.loud])),
            constraints=[LinearConstraint(matrix.tocsr(), low, high) for matrix, low, high in blocks],
            options={"mip_rel_gap": 0.0, "node_limit": NODES, "time_limit": PATIENCE},
        )
        if answer.x is None:
            return None
        choice: Choice = answer.x[:count].reshape(kernels, types).argmax(1)
        return choice
