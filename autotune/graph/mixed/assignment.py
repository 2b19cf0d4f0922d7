"""The fastest choice of kernel dtypes whose noise keeps a bound.

Types are numbered from 0, float32, to the narrowest. A place (`RoundingSite`) is a set of numbers that are stored or
multiplied in a narrow type if any of some kernels is in it. This saves time, or costs time for conversions, and adds
noise. Seconds and noise are thus sums over places that are narrow. A choice is a multiple-choice knapsack whose items
share weights and values (Sinha and Zoltners, "The Multiple-Choice Knapsack Problem", 1979). HiGHS solves it exactly as
a mixed-integer linear program (Huangfu and Hall, "Parallelizing the dual revised simplex method", 2018).

A choice depends on the problem alone: the solver draws no random numbers, and is bounded by nodes of its search, not by
time. Among choices that save the same within `TIE`, kernels are brought to the widest type without loss, one after the
other. So a kernel that gains nothing stays in float32.
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
"""Types of the kernels, (kernels,); 0 is float32."""

TIE = 1e-8
"""Share of the seconds of all places by which savings must differ; solvers cannot resolve less."""

NODES = 500
"""Maximum nodes of a search, after which the best choice so far is used; surveyed networks need fewer than ten."""

PATIENCE = 30.0
"""Maximum seconds of a search, in case its nodes take unusually long."""

_SCALE = 1e3
"""Sum of all savings in the solver's units, relative to its absolute tolerance of 1e-6."""
_MARGIN = 2e-6
"""Share by which a bound is tightened if a choice exceeds it, by the solver's tolerance."""
_ROUNDING = 1e-9
"""Share by which sums of floats may exceed a bound."""


@dataclass(frozen=True, eq=False)
class Problem:
    """A choice of types for kernels, with savings and noise.

    Attributes:
        kernels: names of the kernels.
        at: (places, kernels, types), whether a kernel in that type activates a place. Places of type 0 are active as
            long as any of their kernels is in float32, such as values that are stored for it.
        savings: (places,), seconds that an active place saves; negative if it costs time.
        noise: (places, outputs), noise over signal, in power.
        may: (kernels, types), allowed types; float32 must be allowed.
    """

    kernels: Sequence[str]
    at: NDArray[np.bool_]
    savings: NDArray[np.float64]
    noise: NDArray[np.float64]
    may: NDArray[np.bool_]

    def __post_init__(self) -> None:
        places, kernels, types = self.at.shape
        wanted = (len(self.kernels), (kernels, types), (places,), (places,))
        if (kernels, self.may.shape, self.savings.shape, self.noise.shape[:1]) != wanted:
            raise ValueError(
                f"`at` must be (places, kernels, types), but got at={self.at.shape}, kernels={len(self.kernels)}, "
                f"may={self.may.shape}, saved={self.savings.shape}, noise={self.noise.shape}"
            )
        if not self.may[:, 0].all():
            raise ValueError("`may` must allow type 0 for all kernels, but does not")

    @property
    def full(self) -> Choice:
        """The choice with all kernels in float32."""
        return np.zeros(len(self.kernels), np.int64)

    def all_in(self, kind: int) -> Choice:
        """Returns the choice with each kernel in a type, or in the narrowest allowed one that is wider."""
        types = np.arange(self.may.shape[1])
        found: Choice = np.where(self.may & (types <= kind), types, 0).max(1, initial=0)
        return found

    def there(self, choice: Choice) -> Bits:
        """Returns the active places, (places,)."""
        return np.asarray(self.at[:, np.arange(len(choice)), choice].any(1))

    @cached_property
    def before(self) -> float:
        """Seconds saved by the places that are active with all kernels in float32, relative to which others count."""
        return float(self.savings[self.there(self.full)].sum())

    def totals(self, choice: Choice) -> tuple[float, NDArray[np.float64]]:
        """Returns the seconds that a choice saves relative to float32, and the noise of each output."""
        there = self.there(choice)
        return float(self.savings[there].sum()) - self.before, self.noise[there].sum(0)


@dataclass(frozen=True, eq=False)
class TradeoffPoint:
    """A choice with its estimates.

    Attributes:
        choice: types of the kernels.
        savings: seconds saved.
        noise: noise over signal of the worst output.
    """

    choice: Choice
    savings: float
    noise: float

    @property
    def decibels(self) -> float:
        """Ratio of signal to noise of the worst output; infinite without rounding."""
        return -10 * math.log10(self.noise) if self.noise > 0 else math.inf


def make_point(problem: Problem, choice: Choice) -> TradeoffPoint:
    """Returns a choice with its totals."""
    saved, noise = problem.totals(choice)
    return TradeoffPoint(choice, saved, float(noise.max(initial=0.0)))


def assign(problem: Problem, noise: float) -> Choice:
    """Returns the fastest choice with no more than `noise` over signal in any output, see the module for ties.

    If `NODES` or `PATIENCE` stops the solver, the best choice so far is returned; without any, all in float32.

    Raises:
        ValueError: the bound is not positive.
    """
    if not noise > 0:
        raise ValueError(f"`noise` must be above 0, but got noise={noise}")
    for share in (1.0, 1.0 - _MARGIN):
        choice = _fastest(problem, noise * share)
        if _keeps(problem, choice, noise):
            break
    return _widen(problem, choice, noise) if problem.totals(choice)[0] > 0 else problem.full


def front(problem: Problem, noise: float) -> list[TradeoffPoint]:
    """Returns choices from all in float32 to the fastest with at most `noise`, each faster and noisier than the last.

    They are the fastest choices for bounds one decibel apart.

    Raises:
        ValueError: the bound is not positive.
    """
    point = make_point(problem, assign(problem, noise))
    points, decibels = [point], math.floor(-10 * math.log10(noise)) + 1
    while point.choice.any():
        if math.isinf(point.decibels):
            point = make_point(problem, problem.full)
        else:
            decibels = max(decibels, math.floor(point.decibels) + 1)  # a choice stays the fastest down to its own noise
            point = make_point(problem, assign(problem, 10 ** (-decibels / 10)))
            decibels += 1
        if point.savings >= points[-1].savings:
            points.pop()
        points.append(point)
    return points[::-1]


def _keeps(problem: Problem, choice: Choice, noise: float) -> bool:
    """Tells whether a choice keeps a bound, up to the rounding of sums."""
    return bool((problem.totals(choice)[1] <= noise * (1 + _ROUNDING)).all())


def _widen(problem: Problem, choice: Choice, noise: float) -> Choice:
    """Returns a choice with the same savings, with kernels in wider types, see the module."""
    least = problem.totals(choice)[0] - TIE * float(np.abs(problem.savings).sum())
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
    """Solves the integer program of a problem within a bound; returns all in float32 if the solver has no choice.

    The unknown `x`, (kernels, types), is 1 if a kernel is in a type. The unknown `y`, (places,), is 1 if a place is
    active, which follows from `x`. Places of the same kernels in the same types are merged.
    """
    from scipy import sparse  # its import is slow, and most networks have one type
    from scipy.optimize import Bounds, LinearConstraint, milp

    kernels, types = problem.may.shape
    count, outputs = kernels * types, problem.noise.shape[1]
    if not count:
        return problem.full
    at, merged = np.unique((problem.at & problem.may).reshape(-1, count), axis=0, return_inverse=True)
    place_count = len(at)
    saved, shares = np.zeros(place_count), np.zeros((place_count, outputs))
    np.add.at(saved, merged.reshape(-1), problem.savings)
    np.add.at(shares, merged.reshape(-1), problem.noise / noise)
    loud = np.any(shares > 1 + _ROUNDING, axis=1)  # these can never be active
    shares[loud] = 0.0
    saved *= _SCALE / (float(np.abs(problem.savings).sum()) or 1.0)

    place_ids, kernel = np.nonzero(at.reshape(place_count, kernels, types).any(2))
    row = np.arange(len(place_ids))
    own = np.zeros((len(place_ids), kernels, types))  # x of a kernel that activates a place
    own[row, kernel] = at.reshape(place_count, kernels, types)[place_ids, kernel]
    incidence = sparse.csr_matrix((np.ones(len(place_ids)), (row, place_ids)), shape=(len(place_ids), place_count))
    one = sparse.kron(sparse.identity(kernels), np.ones((1, types)))
    rules = [
        (one, sparse.csr_matrix((kernels, place_count)), 1.0, 1.0),
        (sparse.csr_matrix(own.reshape(len(place_ids), count)), -incidence, -np.inf, 0.0),
        (-sparse.csr_matrix(at.astype(float)), sparse.identity(place_count), -np.inf, 0.0),
        (sparse.csr_matrix((outputs, count)), sparse.csr_matrix(shares.T), -np.inf, 1.0),
    ]
    answer = milp(
        np.concatenate([np.zeros(count), -saved]),
        integrality=np.concatenate([np.ones(count), np.zeros(place_count)]),
        bounds=Bounds(0.0, np.concatenate([problem.may.reshape(-1).astype(float), 1.0 - loud])),
        constraints=[LinearConstraint(sparse.hstack([x, y]).tocsr(), low, high) for x, y, low, high in rules],
        options={"mip_rel_gap": 0.0, "node_limit": NODES, "time_limit": PATIENCE},
    )
    if answer.x is None:
        return problem.full
    choice: Choice = answer.x[:count].reshape(kernels, types).argmax(1)
    return choice
