"""Base of strategies with a scorer: history, diverse pick by score, random explorers."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from autotune.tuner.search.base import Bounds, Candidate, Scorer, SearchStrategy, check_seconds
from autotune.tuner.search.moves import pick_diverse
from autotune.tuner.search.population import Frame, Population, SeenCandidates
from autotune.tuner.search.sampling import LegalSampler
from search_space.decisions import Space

LEAST = 32
"""Smallest number of candidates drawn of a sketch: a call of the scorer costs about as much for one."""


FEW = 4
"""Smallest request whose random share is rounded up; in a smaller one each candidate is random with that chance."""


@dataclass(frozen=True)
class GuidedOptions:
    """Options that all guided strategies have.

    Attributes:
        epsilon: share of each request that is random.
        first_epsilon: random share while nothing is measured.
        first_sample: number of candidates ranked by the scorer while nothing is measured.
        diversity: weight of the difference to candidates picked already, see `moves.pick_diverse`.
    """

    BOUNDS: ClassVar[Bounds] = {
        "epsilon": (0, 1),
        "first_epsilon": (0, 1),
        "first_sample": (1, math.inf),
        "diversity": (0, math.inf),
    }

    epsilon: float = 0.05
    first_epsilon: float = 0.125
    first_sample: int = 8192
    diversity: float = 0.1


class GuidedSearch(SearchStrategy):
    """Strategy that proposes the best-scored of a pool that a subclass makes, and some at random."""

    Options: ClassVar[type[Any]] = GuidedOptions

    def __init__(self, space: Space, scorer: Scorer, rng: np.random.Generator, **options: Any) -> None:
        super().__init__(space, scorer, rng, **options)
        self.frame = Frame(space)
        self.seen_candidates = SeenCandidates()
        self.sampler = LegalSampler(self.frame, self.seen_candidates, rng)
        self.measured_population = self.frame.empty()
        self.seconds = np.empty(0)  # (measured,)
        self.asked_counts = np.zeros(len(space.sketches), np.int64)  # (sketches,)
        self._explores = True

    def ask(self, n: int) -> list[Candidate]:
        if n < 1:
            raise ValueError(f"`n` must be at least 1, but got n={n}")
        share = self.options.epsilon if len(self.measured_population) else self.options.first_epsilon
        explorers = self._explorers(n, share) if self._explores else 0
        chosen = self._note(self._best(n - explorers)) if n > explorers else self.frame.empty()
        rest = self.explore(n - len(chosen))
        self.sampler.check()
        return self.frame.candidates(Population.concatenate([chosen, rest]))

    def _explorers(self, n: int, share: float) -> int:
        """Counts the random candidates of a request: a rounded-up share, in a small one each by chance."""
        if n < FEW:
            return int(self.rng.binomial(n, share))
        return min(n, math.ceil(n * share))

    def ask_greedy(self, n: int) -> list[Candidate]:
        self._explores = False
        try:
            return self.ask(n)
        finally:
            self._explores = True

    def tell(self, candidates: Sequence[Candidate], seconds: NDArray[np.float64]) -> None:
        seconds = check_seconds(candidates, seconds)
        if not len(candidates):
            return
        population = self.frame.population(candidates)
        self.seen_candidates.add(self.frame.keys(population))
        self.measured_population = Population.concatenate([self.measured_population, population])
        self.seconds = np.concatenate([self.seconds, seconds])

    @abstractmethod
    def propose(self, n: int) -> tuple[Population, NDArray[np.float64]]:
        """Proposes scored candidates to pick `n` from, distinct and legal; the caller leaves out those seen.

        It is called only after the first measurements.
        """

    def elites(self, n: int) -> Population:
        """Returns at most `n` of the fastest measured candidates, fastest first."""
        order = np.argsort(self.seconds, kind="stable")  # NaN last
        return self.measured_population.take(order[: min(n, int(np.isfinite(self.seconds).sum()))])

    def explore(self, n: int) -> Population:
        """Draws `n` random candidates, evenly of all sketches; sketches without any first, small ones before large."""
        parts = [self.frame.empty()]
        while n > 0 and self.sampler.open.any():
            drawn = self._note(self.sampler.spread(self._quotas(n)))
            parts.append(drawn)
            n -= len(drawn)
        return Population.concatenate(parts)

    def _quotas(self, n: int) -> NDArray[np.int64]:
        """Splits `n` random candidates among the sketches: (sketches,)."""
        sizes = np.array([float(sketch.size) for sketch in self.frame.sketches])
        known = self.asked_counts > 0
        order = np.lexsort((self.rng.random(len(sizes)), np.where(known, 0.0, sizes), known))
        order = order[self.sampler.open[order]]
        counts = np.zeros(len(sizes), np.int64)
        counts[order] = n // len(order)
        counts[order[: n % len(order)]] += 1
        return counts

    def shares(self, total: int) -> NDArray[np.int64]:
        """Splits `total` candidates evenly among the open sketches, at least `LEAST` each: (sketches,)."""
        each = max(LEAST, total // max(1, int(self.sampler.open.sum())))
        return np.where(self.sampler.open, each, 0)

    def _best(self, n: int) -> Population:
        if len(self.measured_population):
            pool, scores = self.propose(n)
            cap = None
        else:
            pool = self.sampler.spread(self.shares(self.options.first_sample))
            scores = self.frame.score(pool, self.scorer)
            # Unmeasured sketches share the request: a quarter each at most, or an equal part if there are fewer.
            cap = max(1, n // 4, math.ceil(n / max(1, len(np.unique(pool.sketches)))))
        fresh = np.flatnonzero(self.seen_candidates.fresh(self.frame.keys(pool)))
        pool, scores = pool.take(fresh), scores[fresh]
        return pool.take(pick_diverse(pool, scores, n, self.options.diversity, cap))

    def _note(self, population: Population) -> Population:
        """Marks candidates as proposed."""
        if len(population):
            self.seen_candidates.add(self.frame.keys(population))
            self.asked_counts += np.bincount(population.sketches, minlength=len(self.asked_counts))
        return population
