"""Small spaces listed whole: the model is asked of every candidate, and none is overlooked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from autotune.search.base import Bounds
from autotune.search.evolution import Evolution, EvolutionOptions
from autotune.search.population import Population

BLOCK = 1 << 16


@dataclass(frozen=True)
class ListingOptions(EvolutionOptions):
    """Options.

    Attributes:
        most: candidates, legal or not, up to which a space is listed; larger ones are searched by evolution.
        epsilon: of `GuidedOptions`; nothing at random, as a model that knows how unsure it is explores by itself.
    """

    BOUNDS: ClassVar[Bounds] = {"most": (1, 1 << 24)}

    most: int = 1 << 18
    epsilon: float = 0.0


class Listing(Evolution):
    """The best-scored of all candidates that were not proposed yet."""

    Options: ClassVar[type[ListingOptions]] = ListingOptions

    def propose(self, n: int) -> tuple[Population, NDArray[np.float64]]:
        if self.space_size > self.options.most:
            return super().propose(n)
        if not hasattr(self, "_left"):
            self._left = self._everyone()
        self._left = self._left.take(self.seen.fresh(self.frame.keys(self._left)))
        return self._left, self.frame.score(self._left, self.scorer)

    @property
    def space_size(self) -> int:
        """Candidates of all sketches, legal or not."""
        return sum(sketch.size for sketch in self.frame.sketches)

    def _everyone(self) -> Population:
        """Every legal candidate, sketches in order."""
        parts = [self.frame.empty()]
        for place, sketch in enumerate(self.frame.sketches):
            shape = tuple(len(group.table) for group in sketch.groups)
            for first in range(0, sketch.size, BLOCK):
                numbers = np.arange(first, min(first + BLOCK, sketch.size))
                rows = np.stack(np.unravel_index(numbers, shape), axis=1) if shape else np.empty((1, 0))
                part = self.frame.of(place, rows.astype(np.int32))
                parts.append(part.take(self.frame.legal(part)))
        return Population.concatenate(parts)
