"""Simulated annealing on the score: all chains move at once, and continue in the next request."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from autotune.tuner.search import moves
from autotune.tuner.search.base import Bounds
from autotune.tuner.search.guided import GuidedOptions, GuidedSearch
from autotune.tuner.search.population import Population, SeenCandidates


@dataclass(frozen=True)
class AnnealingOptions(GuidedOptions):
    """Options. AutoTVM has 128 chains of 500 iterations and stops after 50 without a better best.

    Here, as many steps are made in fewer, wider iterations, which suits arrays.

    Attributes:
        chains: number of points that move at a time.
        iterations: number of moves of each chain in a request.
        temperature: initial temperature in standard deviations of the scores; falls linearly to 0.
        early_stop: number of iterations without a better pool after which a request ends.
        jump: probability that a chain tries a random point of any sketch in place of a neighbour.
        measured: share of the chains that start a request at the fastest measured candidates.
    """

    BOUNDS: ClassVar[Bounds] = {
        "chains": (1, math.inf),
        "iterations": (1, math.inf),
        "temperature": (0, math.inf),
        "early_stop": (1, math.inf),
        "jump": (0, 1),
        "measured": (0, 1),
    }

    chains: int = 256
    iterations: int = 32
    temperature: float = 1.0
    early_stop: int = 8
    jump: float = 0.05
    measured: float = 0.1


class Annealing(GuidedSearch):
    """Annealing: chains accept moves with probability exp(min((new - old) / t, 0)); the best points are kept."""

    Options: ClassVar[type[AnnealingOptions]] = AnnealingOptions

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._chains = self.frame.empty()

    def propose(self, n: int) -> tuple[Population, NDArray[np.float64]]:
        chains = self._start()
        if not len(chains):
            return chains, np.empty(0)
        scores = self.frame.score(chains, self.scorer)
        pool = _Pool(self, 8 * n, chains, scores)  # more than n, for a diverse pick
        scale = float(np.std(scores[np.isfinite(scores)])) or 1.0
        jumps = self._jumps()
        idle = 0
        for iteration in range(self.options.iterations):
            heat = self.options.temperature * scale * (1 - iteration / self.options.iterations)
            moved = self._move(chains, jumps)
            indices = np.flatnonzero(self.frame.legal(moved))
            proposals = moved.take(indices)
            values = self.frame.score(proposals, self.scorer)
            idle = 0 if pool.add(proposals, values) else idle + 1
            # The small term avoids a division by 0 at temperature 0; exp(-50) is as good as 0.
            gain = np.clip((values - scores[indices]) / (heat + 1e-5 * scale), -50.0, 0.0)
            accepted = self.rng.random(len(indices)) < np.exp(gain)
            indices = indices[accepted]
            chains.sketches[indices], chains.rows[indices] = proposals.sketches[accepted], proposals.rows[accepted]
            scores[indices] = values[accepted]
            if idle >= self.options.early_stop:
                break
        self._chains = chains
        return pool.members, pool.scores

    def _start(self) -> Population:
        """Continues the chains, at first random ones; the last few move to the fastest measured candidates."""
        size = self.options.chains
        if not len(self._chains):
            open_sketches = np.flatnonzero(self.sampler.open)
            if not len(open_sketches):
                return self.elites(size)
            counts = np.bincount(self.rng.choice(open_sketches, size), minlength=len(self.asked_counts))
            self._chains = self.sampler.spread(counts)
        elites = self.elites(round(size * self.options.measured))
        kept = self._chains.take(np.arange(min(len(self._chains), size - len(elites))))
        return Population.concatenate([kept, elites])

    def _jumps(self) -> Population:
        """Draws random points of two sketches for this request's jumps: every sketch used costs a call."""
        open_sketches = np.flatnonzero(self.sampler.open)
        if not len(open_sketches):
            return self.frame.empty()
        counts = np.bincount(self.rng.choice(open_sketches, 2), minlength=len(self.asked_counts)) * 128
        return self.sampler.spread(counts)

    def _move(self, chains: Population, jumps: Population) -> Population:
        moved = moves.mutate(chains, self.frame, self.rng, rate=0.0, local=0.5)
        if not len(jumps):
            return moved
        leap = self.rng.random(len(chains)) < self.options.jump
        target = jumps.take(self.rng.integers(0, len(jumps), len(chains)))
        return Population(
            np.where(leap, target.sketches, moved.sketches), np.where(leap[:, None], target.rows, moved.rows)
        )


class _Pool:
    """The best distinct visited points that have not been proposed yet."""

    def __init__(self, search: Annealing, size: int, members: Population, scores: NDArray[np.float64]) -> None:
        self._search, self._size, self._seen_candidates = search, size, SeenCandidates()
        self.members, self.scores = search.frame.empty(), np.empty(0)
        self.add(members, scores)

    def add(self, members: Population, scores: NDArray[np.float64]) -> bool:
        """Adds points; tells whether one of them entered the pool."""
        keys = self._search.frame.keys(members)
        fresh = self._seen_candidates.fresh(keys) & self._search.seen_candidates.fresh(keys)
        self._seen_candidates.add(keys)
        both = np.concatenate([self.scores, scores[fresh]])
        order = np.argsort(-both, kind="stable")[: self._size]
        gained = bool((order >= len(self.scores)).any())
        self.members = Population.concatenate([self.members, members.take(fresh)]).take(order)
        self.scores = both[order]
        return gained
