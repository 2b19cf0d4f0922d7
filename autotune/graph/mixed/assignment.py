"""The fastest choice of types of kernels whose noise keeps a bound.

Types are numbered from 0, float32, to the narrowest. Numbers are stored or multiplied in a type where one of some
kernels is in it (`Place`), which saves time, or costs some where they have to be converted, and adds noise. So seconds
and noise are sums over places, each of which is there or not, and a choice is a multiple-choice knapsack (Sinha and
Zoltners, "The Multiple-Choice Knapsack Problem", 1979) whose items share weights and worths. It is solved exactly, as a
mixed-integer linear program by HiGHS (Huangfu and Hall, "Parallelizing the dual revised simplex method", 2018).

A choice depends on the problem alone: the solver draws no random numbers, and is bounded by nodes of its search, not by
time. Where choices save the same within `TIE`, kernels of the one that is found are brought to the widest type that
loses nothing, one after the other: what gains nothing stays in float32.
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

NODES = 500
"""Nodes of a search, after which the best choice by then is taken; networks of the survey need fewer than ten."""

PATIENCE = 30.0
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
        choice = _fastest(problem, noise * share)
        if _keeps(problem, choice, noise):
            break
    return _widened(problem, choice, noise) if problem.totals(choice)[0] > 0 else problem.full


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


def _keeps(problem: Problem, choice: Choice, noise: float) -> bool:
    """Says whether a choice keeps a bound, but for the rounding of sums."""
    return bool((problem.totals(choice)[1] <= noise * (1 + _ROUNDING)).all())


def _widened(problem: Problem, choice: Choice, noise: float) -> Choice:
    """Returns a choice that saves the same, with kernels in wider types, see the module."""
    least = problem.totals(choice)[0] - TIE * float(np.abs(problem.saved).sum())
    changed = True
    while changed:
        changed = False
        for kernel in range(len(choice)):
            for kind in np.flatnonzero(problem.may[kernel, : choice[kernel]]).tolist():
                wider = choice.copy()
                wider[kernel] = kind
                if problem.totals(wider)[0] >= least and _keeps(problem, wider, noise):
                    choice, changed = wider, True
                    break
    return choice


def _fastest(problem: Problem, noise: float) -> Choice:
    """Solves the integer program of a problem within a bound; all in float32 where the solver has no choice.

    Unknowns are `x`, (kernels, types), 1 where a kernel is in a type, and `y`, (places,), 1 where a place is there,
    which follows from `x`. Places of the same kernels in the same types are one.
    """
    from scipy import sparse  # it takes long to import, and most networks are in one type
    from scipy.optimize import Bounds, LinearConstraint, milp

    kernels, types = problem.may.shape
    count, outputs = kernels * types, problem.noise.shape[1]
    if not count:
        return problem.full
    at, merged = np.unique((problem.at & problem.may).reshape(-1, count), axis=0, return_inverse=True)
    places = len(at)
    saved, shares = np.zeros(places), np.zeros((places, outputs))
    np.add.at(saved, merged.reshape(-1), problem.saved)
    np.add.at(shares, merged.reshape(-1), problem.noise / noise)
    loud = np.any(shares > 1 + _ROUNDING, axis=1)  # these cannot be there
    shares[loud] = 0.0
    saved *= _SCALE / (float(np.abs(problem.saved).sum()) or 1.0)

    place, kernel = np.nonzero(at.reshape(places, kernels, types).any(2))
    row = np.arange(len(place))
    own = np.zeros((len(place), kernels, types))  # x of a kernel that holds a place
    own[row, kernel] = at.reshape(places, kernels, types)[place, kernel]
    held = sparse.csr_matrix((np.ones(len(place)), (row, place)), shape=(len(place), places))
    one = sparse.kron(sparse.identity(kernels), np.ones((1, types)))
    rules = [
        (one, sparse.csr_matrix((kernels, places)), 1.0, 1.0),
        (sparse.csr_matrix(own.reshape(len(place), count)), -held, -np.inf, 0.0),
        (-sparse.csr_matrix(at.astype(float)), sparse.identity(places), -np.inf, 0.0),
        (sparse.csr_matrix((outputs, count)), sparse.csr_matrix(shares.T), -np.inf, 1.0),
    ]
    answer = milp(
        np.concatenate([np.zeros(count), -saved]),
        integrality=np.concatenate([np.ones(count), np.zeros(places)]),
        bounds=Bounds(0.0, np.concatenate([problem.may.reshape(-1).astype(float), 1.0 - loud])),
        constraints=[LinearConstraint(sparse.hstack([x, y]).tocsr(), low, high) for x, y, low, high in rules],
        options={"mip_rel_gap": 0.0, "node_limit": NODES, "time_limit": PATIENCE},
    )
    if answer.x is None:
        return problem.full
    choice: Choice = answer.x[:count].reshape(kernels, types).argmax(1)
    return choice
