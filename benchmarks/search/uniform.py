"""Honest random search: every legal candidate of the space equally likely, none twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.tuner.search.base import Candidate, NoLegalSchedule, Scorer, SearchStrategy
from autotune.tuner.search.population import Frame, SeenCandidates
from benchmarks.search.replay import everyone
from search_space.space import SearchSpace


class UniformSearch(SearchStrategy):
    """A random order of all legal candidates: the baseline of all searches.

    The strategy `random` takes every sketch equally often, which is another distribution where sketches differ in size.

    Args:
        space: space to search; small enough to be listed.
        scorer: never asked.
        rng: source of the order.
    """

    def __init__(self, space: SearchSpace, scorer: Scorer, rng: np.random.Generator, **options: Any) -> None:
        if options:
            raise ValueError(f"`uniform` must have no options, but got {', '.join(options)}")
        self._frame, self._seen_keys = Frame(space), SeenCandidates()
        listed = everyone(self._frame)
        if not len(listed):
            broken: dict[str, int] = {}
            raise NoLegalSchedule(space.workload.key, space.size, broken)
        self._left = listed.take(rng.permutation(len(listed)))

    def ask(self, n: int) -> list[Candidate]:
        if n < 1:
            raise ValueError(f"`n` must be at least 1, but got n={n}")
        self._left = self._left.take(self._seen_keys.fresh(self._frame.keys(self._left)))
        drawn = self._left.take(np.arange(min(n, len(self._left))))
        if len(drawn):
            self._seen_keys.add(self._frame.keys(drawn))
        return self._frame.candidates(drawn)

    def tell(self, candidates: Sequence[Candidate], seconds: NDArray[np.float64]) -> None:
        if candidates:
            self._seen_keys.add(self._frame.keys(self._frame.population(candidates)))
