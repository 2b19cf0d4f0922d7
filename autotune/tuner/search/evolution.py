"""Evolutionary search: one population over all sketches, so that good sketches grow in it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from autotune.tuner.search import moves
from autotune.tuner.search.base import Bounds
from autotune.tuner.search.guided import LEAST, GuidedOptions, GuidedSearch
from autotune.tuner.search.population import Population, SeenCandidates


@dataclass(frozen=True)
class EvolutionOptions(GuidedOptions):
    """Options, with Ansor's names.

    Attributes:
        population: number of survivors of a generation.
        generations: number of breeding rounds in each request.
        crossover: probability that a child has a second parent, of the same sketch.
        mutation: probability that a child with two parents is mutated; one with a single parent always is.
        measured: share of the first generation that comes from the fastest measured candidates.
        curiosity: share of the new random candidates that goes to sketches picked at random.
    """

    BOUNDS: ClassVar[Bounds] = {
        "population": (1, math.inf),
        "generations": (0, math.inf),
        "crossover": (0, 1),
        "mutation": (0, 1),
        "measured": (0, 1),
        "curiosity": (0, 1),
    }

    population: int = 1024
    generations: int = 4
    crossover: float = 0.4
    mutation: float = 0.85
    measured: float = 0.2
    curiosity: float = 0.25


class Evolution(GuidedSearch):
    """Evolution whose survivors are the best-scored of parents and children; parents win tournaments of three."""

    Options: ClassVar[type[EvolutionOptions]] = EvolutionOptions

    def propose(self, n: int) -> tuple[Population, NDArray[np.float64]]:
        size = max(self.options.population, 2 * n)
        alive = self._start(size)
        met = SeenCandidates()
        keys = self.frame.keys(alive)
        alive = alive.take(met.fresh(keys))
        met.add(keys)
        scores = self.frame.score(alive, self.scorer)
        for _ in range(self.options.generations):
            if not len(alive):
                break
            children = self._breed(alive, scores, size)
            keys = self.frame.keys(children)
            children = children.take(met.fresh(keys))
            met.add(keys)
            children = children.take(self.frame.legal(children))
            alive = Population.concatenate([alive, children])
            scores = np.concatenate([scores, self.frame.score(children, self.scorer)])
            alive, scores = _survive(
                alive, scores, size + len(self.seen_candidates)
            )  # seen ones breed, but are not proposed
        return alive, scores

    def _start(self, size: int) -> Population:
        """Collects the fastest measured, and random candidates of sketches in proportion to their success so far."""
        elites = self.elites(round(size * self.options.measured))
        room = size - len(elites)
        blocks = max(1, round(room * self.options.curiosity) // (4 * LEAST))
        counts = np.zeros(len(self.asked_counts), np.int64)
        unknown = np.flatnonzero(self.sampler.open)
        if len(unknown):
            np.add.at(counts, self.rng.choice(unknown, blocks), 4 * LEAST)
        promise = self._promise()
        if promise.any():
            counts += self.rng.multinomial(max(0, room - int(counts.sum())), promise / promise.sum())
        return Population.concatenate([elites, self.sampler.spread(counts)])

    def _promise(self) -> NDArray[np.float64]:
        """Counts the members of each sketch among the 32 fastest, (sketches,), as its share of random draws."""
        best = self.elites(32)
        counts = np.bincount(best.sketches, minlength=len(self.asked_counts))
        return np.where(self.sampler.open, counts, 0).astype(np.float64)

    def _breed(self, alive: Population, scores: NDArray[np.float64], n: int) -> Population:
        chosen = moves.tournament(scores, n, self.rng)
        parents = alive.take(chosen)
        paired = self.rng.random(n) < self.options.crossover
        mates = alive.take(moves.draw_mates(chosen, alive, self.rng))
        crossed = moves.cross(parents, mates, self.rng)
        rows = np.where(paired[:, None], crossed.rows, parents.rows)
        mutated = moves.mutate(Population(parents.sketches, rows), self.frame, self.rng)
        change = ~paired | (self.rng.random(n) < self.options.mutation)
        return Population(parents.sketches, np.where(change[:, None], mutated.rows, rows))


def _survive(alive: Population, scores: NDArray[np.float64], n: int) -> tuple[Population, NDArray[np.float64]]:
    order = np.argsort(-scores, kind="stable")[:n]
    return alive.take(order), scores[order]
