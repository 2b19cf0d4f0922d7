"""Exhaustive listing of small spaces: the model scores every candidate."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from autotune.tuner.search.base import Bounds
from autotune.tuner.search.evolution import Evolution, EvolutionOptions
from autotune.tuner.search.population import Population
from search_space.decisions import every_choice


@dataclass(frozen=True)
class ListingOptions(EvolutionOptions):
    """Options.

    Attributes:
        most: number of candidates, legal or not, up to which a space is listed; larger ones are searched by evolution.
        epsilon: random share, see `GuidedOptions`; 0, as a model that estimates its uncertainty explores by itself.
    """

    BOUNDS: ClassVar[Bounds] = {"most": (1, 1 << 24)}

    most: int = 1 << 18
    epsilon: float = 0.0


class Listing(Evolution):
    """Strategy that proposes the best-scored of all candidates not proposed yet."""

    Options: ClassVar[type[ListingOptions]] = ListingOptions

    def propose(self, n: int) -> tuple[Population, NDArray[np.float64]]:
        if sum(sketch.size for sketch in self.frame.sketches) > self.options.most:
            return super().propose(n)
        left = self._everyone.take(self.seen_candidates.fresh(self.frame.keys(self._everyone)))
        return left, self.frame.score(left, self.scorer)

    @cached_property
    def _everyone(self) -> Population:
        """Every legal candidate, sketches in order."""
        blocks = [self.frame.of(i, rows) for i, of in enumerate(self.frame.sketches) for rows in every_choice(of)]
        return Population.concatenate([block.take(self.frame.legal(block)) for block in blocks])
