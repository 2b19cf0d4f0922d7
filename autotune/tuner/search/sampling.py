"""Sampling of legal candidates: small sketches are listed, large ones drawn in blocks and filtered."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from autotune.tuner.search.base import NoLegalSchedule
from autotune.tuner.search.population import Frame, Population, SeenCandidates
from search_space.decisions import every_choice
from search_space.schedule.errors import ScheduleError

if TYPE_CHECKING:
    from search_space.decisions import Space

LISTING_LIMIT = 1 << 14
"""Largest number of candidates of a sketch that is listed, so that its end is known exactly."""
BLOCK = 1 << 15
"""Largest number of choices that are drawn at once."""
PATIENCE = 1 << 18
"""Number of draws without a new legal candidate after which a sketch is given up for this request."""


def require_legal(space: Space) -> None:
    """Finds one legal candidate of a space, in the first sketch that has one.

    Raises:
        NoLegalSchedule: the space has no legal candidate.
    """
    sampler = LegalSampler(Frame(space), SeenCandidates(), np.random.default_rng(0))
    for sketch in range(len(space.sketches)):
        if len(sampler.draw(sketch, 1)):
            return
    sampler.check()


class LegalSampler:
    """Sampler of legal candidates that have not been seen.

    Args:
        frame: frame of the space.
        seen_candidates: candidates not to draw; the strategy updates it.
        rng: source of the draws.

    Attributes:
        open: whether a sketch may still have an unseen candidate, bool (sketches,).
    """

    def __init__(self, frame: Frame, seen_candidates: SeenCandidates, rng: np.random.Generator) -> None:
        self.frame, self.seen_candidates, self.rng = frame, seen_candidates, rng
        self.open = np.ones(len(frame.sketches), np.bool_)
        self._legal_choices: dict[int, NDArray[np.int32]] = {}  # sketch -> legal choices (n, groups)
        self._draw_counts = np.zeros(len(frame.sketches), np.int64)
        self._legal_counts = np.zeros(len(frame.sketches), np.int64)
        self._violations: Counter[str] = Counter()

    def draw(self, sketch: int, n: int) -> Population:
        """Draws at most `n` distinct candidates of a sketch, legal and not seen; fewer if there are no more."""
        if n < 1 or not self.open[sketch]:
            return self.frame.empty()
        try:
            if self.frame.sketches[sketch].size <= LISTING_LIMIT:
                return self._from_list(sketch, n)
            return self._from_blocks(sketch, n)
        except ScheduleError as error:
            self._violations[f"lowering ({error})"] += 1
            self._draw_counts[sketch] += 1
            self.open[sketch] = False
            return self.frame.empty()

    def spread(self, counts: NDArray[np.int64]) -> Population:
        """Draws `counts[sketch]` candidates of each sketch."""
        parts = [self.draw(int(sketch), int(counts[sketch])) for sketch in np.flatnonzero(counts)]
        return Population.concatenate([self.frame.empty(), *parts])

    def check(self) -> None:
        """Raises NoLegalSchedule if all sketches are exhausted and none has ever had a legal candidate."""
        if not self._legal_counts.any() and not self.open.any():
            space = self.frame.space
            workload = getattr(space.workload, "key", space.workload)
            raise NoLegalSchedule(str(workload), int(self._draw_counts.sum()), self._violations, space.refusals)

    def _from_list(self, sketch: int, n: int) -> Population:
        if sketch not in self._legal_choices:
            self._legal_choices[sketch] = self._list(sketch)
        everyone = self.frame.of(sketch, self._legal_choices[sketch])
        fresh = np.flatnonzero(self.seen_candidates.fresh(self.frame.keys(everyone)))
        if not len(fresh):
            self.open[sketch] = False
        return everyone.take(self.rng.permutation(fresh)[:n])

    def _list(self, sketch: int) -> NDArray[np.int32]:
        choices = np.concatenate(list(every_choice(self.frame.sketches[sketch])))
        return choices[self._legal(sketch, choices)]

    def _from_blocks(self, sketch: int, n: int) -> Population:
        population, drawn = self.frame.empty(), 0
        while len(population) < n and drawn < PATIENCE:
            block = self._block(sketch, n - len(population))
            choices = self.frame.uniform(sketch, block, self.rng)
            drawn += block
            legal = self.frame.of(sketch, choices[self._legal(sketch, choices)])
            both = Population.concatenate([population, legal])
            both = both.take(self.seen_candidates.fresh(self.frame.keys(both)))
            if len(both) > len(population):
                drawn = 0
            population = both
        if not len(population):
            self.open[sketch] = False
        return population.take(np.arange(min(n, len(population))))

    def _block(self, sketch: int, n: int) -> int:
        """Estimates the number of draws for about `n` legal candidates, by the rate so far."""
        if not self._draw_counts[sketch]:
            return int(np.clip(2 * n, 256, BLOCK))
        rate = max(self._legal_counts[sketch] / self._draw_counts[sketch], 1 / BLOCK)
        return int(np.clip(1.2 * n / rate, 64, BLOCK))  # a margin of 1.2, so that one block mostly suffices

    def _legal(self, sketch: int, choices: NDArray[np.int32]) -> NDArray[np.bool_]:
        legal = self.frame.sketches[sketch].legal(choices)
        self._draw_counts[sketch] += len(choices)
        self._legal_counts[sketch] += int(legal.sum())
        if not self._legal_counts[sketch]:
            self._violations.update(self.frame.sketches[sketch].violations(choices))
        return legal
