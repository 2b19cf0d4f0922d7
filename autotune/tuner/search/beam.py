"""Beam search over decision groups; partial candidates are ranked by scores of random completions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from autotune.tuner.search.base import Bounds
from autotune.tuner.search.guided import LEAST, GuidedOptions, GuidedSearch
from autotune.tuner.search.population import Population, SeenCandidates


@dataclass(frozen=True)
class BeamOptions(GuidedOptions):
    """Options.

    Attributes:
        width: number of partial candidates that are kept at each level.
        branches: number of values of a group tried for each of them, at random if its table has more.
        completions: number of completions of each partial candidate with one more group decided.
        bank: number of legal candidates of a sketch from which completions take undecided groups.
        measured: share of the bank that comes from the fastest measured candidates.
    """

    BOUNDS: ClassVar[Bounds] = {
        "width": (1, math.inf),
        "branches": (1, math.inf),
        "completions": (1, math.inf),
        "bank": (1, math.inf),
        "measured": (0, 1),
    }

    width: int = 24
    branches: int = 24
    completions: int = 4
    bank: int = 512
    measured: float = 0.1


class Beam(GuidedSearch):
    """Beam search on decision groups, after Adams et al., "Learning to optimize Halide with tree search and random
    programs", SIGGRAPH 2019, who decide stage after stage of a pipeline.

    The first decision is the sketch, then its groups in their order. The value of a partial candidate is the best score
    of its legal completions. A completion takes the undecided groups from one of a bank of legal candidates, which
    keeps limits far more often than values drawn one by one. Candidates are picked from all completions scored on the
    way.
    """

    Options: ClassVar[type[BeamOptions]] = BeamOptions

    def propose(self, n: int) -> tuple[Population, NDArray[np.float64]]:
        bank = self._bank()
        if not len(bank):
            return bank, np.empty(0)
        met = SeenCandidates()
        met.add(self.frame.keys(bank))
        scores = self.frame.score(bank, self.scorer)
        populations, values = [bank], [scores]
        members_by_sketch = dict(bank.by_sketch())
        beam = _best_by(bank, scores, bank.sketches, self.options.width)
        for level in range(self.frame.width):
            partial = beam.take(self.frame.groups[beam.sketches] > level)
            if not len(partial):
                break
            partial = self._branch(partial, level)
            completed, parents = self._complete(partial, level, bank, members_by_sketch)
            legal = self.frame.legal(completed)
            completed, parents = completed.take(legal), parents[legal]
            if not len(completed):
                break
            scores = self.frame.score(completed, self.scorer)
            fresh = met.fresh(self.frame.keys(completed))
            met.add(self.frame.keys(completed))
            populations.append(completed.take(fresh))
            values.append(scores[fresh])
            beam = _best_by(completed, scores, parents, self.options.width)
        return Population.concatenate(populations), np.concatenate(values)

    def _bank(self) -> Population:
        """Collects legal candidates of every open sketch, and the fastest measured."""
        open_sketches = max(1, int(self.sampler.open.sum()))
        each = max(LEAST, self.options.bank // open_sketches)
        drawn = self.sampler.spread(np.where(self.sampler.open, each, 0))
        return Population.concatenate([self.elites(round(self.options.bank * self.options.measured)), drawn])

    def _branch(self, partial: Population, level: int) -> Population:
        """Copies each partial candidate with `branches` values of the group `level`, its own value among them."""
        count, wide = len(partial), self.options.branches
        lengths = self.frame.lengths[partial.sketches, level]
        steps = np.arange(wide)
        spread = (steps[None] * lengths[:, None] / wide + self.rng.random((count, 1)) * lengths[:, None] / wide).astype(
            np.int64
        )
        every = np.minimum(steps[None], lengths[:, None] - 1)
        values = np.where(lengths[:, None] <= wide, every, np.minimum(spread, lengths[:, None] - 1))
        values[:, 0] = np.where(lengths <= wide, values[:, 0], partial.rows[:, level])
        rows = np.repeat(partial.rows, wide, axis=0)
        rows[:, level] = values.reshape(-1)
        keep = (steps[None] < lengths[:, None]).reshape(-1)
        return Population(np.repeat(partial.sketches, wide), rows).take(keep)

    def _complete(
        self, partial: Population, level: int, bank: Population, rows_by_sketch: dict[int, NDArray[np.intp]]
    ) -> tuple[Population, NDArray[np.intp]]:
        """Completes partial candidates at random; returns the completions, and the parent of each.

        The first completion of each is the one that its parent was kept for.
        """
        times = self.options.completions
        parents = np.repeat(np.arange(len(partial)), times)
        rows = np.repeat(partial.rows, times, axis=0)
        first = np.arange(len(parents)) % times == 0
        for sketch, members in rows_by_sketch.items():
            mine = np.flatnonzero((partial.sketches[parents] == sketch) & ~first)
            drawn = members[self.rng.integers(0, len(members), len(mine))]
            rows[mine, level + 1 :] = bank.rows[drawn, level + 1 :]
        return Population(partial.sketches[parents], rows), parents


def _best_by(members: Population, scores: NDArray[np.float64], of: NDArray[np.integer], n: int) -> Population:
    """Picks the best member of each of the `n` best values of `of` (members,), best first."""
    order = np.argsort(-scores, kind="stable")
    first = np.sort(np.unique(of[order], return_index=True)[1])[:n]
    return members.take(order[first])
