"""Random search: the baseline that every strategy must beat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from autotune.tuner.search.base import Candidate
from autotune.tuner.search.guided import GuidedSearch
from autotune.tuner.search.population import Population


@dataclass(frozen=True)
class RandomOptions:
    """Empty options of random search."""


class RandomSearch(GuidedSearch):
    """Strategy that draws legal candidates at random, equally many of every sketch, without a scorer."""

    Options: ClassVar[type[RandomOptions]] = RandomOptions

    def ask(self, n: int) -> list[Candidate]:
        if n < 1:
            raise ValueError(f"`n` must be at least 1, but got n={n}")
        drawn = self.explore(n)
        self.sampler.check()
        return self.frame.candidates(drawn)

    def propose(self, n: int) -> tuple[Population, NDArray[np.float64]]:
        return self.frame.empty(), np.empty(0)
