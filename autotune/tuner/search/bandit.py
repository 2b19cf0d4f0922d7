"""Bandit over strategies: requests go to those whose recent candidates improved on the best."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from autotune.tuner.search.base import Bounds, Candidate, SearchStrategy, check_seconds
from autotune.tuner.search.guided import GuidedSearch
from autotune.tuner.search.population import SeenCandidates
from autotune.tuner.search.registry import STRATEGIES, get
from search_space.operators.checks import nearest
from search_space.user_code import is_own


@dataclass(frozen=True)
class BanditOptions:
    """Options.

    Attributes:
        arms: names of the strategies to choose from, with commas between.
        window: number of latest results that count.
        exploration: weight of the uncertainty, the constant C of OpenTuner.
    """

    BOUNDS: ClassVar[Bounds] = {"window": (1, math.inf), "exploration": (0, math.inf)}

    arms: str = "evolution,annealing,beam,random"
    window: int = 256
    exploration: float = 0.05

    def __post_init__(self) -> None:
        _names(self.arms)


class Bandit(SearchStrategy):
    """Area-under-the-curve bandit, after Ansel et al., "OpenTuner: an extensible framework for program autotuning",
    PACT 2014.

    Each candidate of a request is asked of the strategy t of the greatest AUC_t + C sqrt(2 log2 |H| / H_t), H the
    results in the window, H_t those of t. AUC_t is the share of the area under the curve of t's gains in its latest
    results: 2 / (H_t (H_t + 1)) * sum of i * V_i over them, oldest first, V_i whether the i-th was faster than all
    results before its round. Candidates that are not measured yet count as results without a gain, so that a request is
    spread. All strategies see all results, and none proposes a candidate of another.
    """

    Options: ClassVar[type[BanditOptions]] = BanditOptions

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._seen_candidates = SeenCandidates()  # shared by all arms
        self.arms = [self._arm(name) for name in _names(self.options.arms)]
        self.best_seconds = math.inf
        self._arm_by_candidate: dict[Candidate, int] = {}  # outstanding candidate -> its arm
        self._window: deque[tuple[int, bool]] = deque(maxlen=self.options.window)

    def ask(self, n: int) -> list[Candidate]:
        if n < 1:
            raise ValueError(f"`n` must be at least 1, but got n={n}")
        asked: list[Candidate] = []
        able = np.ones(len(self.arms), np.bool_)
        while len(asked) < n and able.any():
            shares = self.divide_shares(n - len(asked), able)
            for arm in np.flatnonzero(shares).tolist():
                found = self.arms[arm].ask(int(shares[arm]))
                able[arm] = len(found) == shares[arm]
                self._arm_by_candidate.update((candidate, arm) for candidate in found)
                asked += found
        return asked

    def tell(self, candidates: Sequence[Candidate], seconds: NDArray[np.float64]) -> None:
        seconds = check_seconds(candidates, seconds)
        for arm in self.arms:
            arm.tell(candidates, seconds)
        for candidate, latency in zip(candidates, seconds.tolist(), strict=True):
            if (of := self._arm_by_candidate.pop(candidate, None)) is not None:
                self._window.append((of, latency < self.best_seconds))
        self.best_seconds = float(np.fmin.reduce(seconds, initial=self.best_seconds))

    def gains(self) -> NDArray[np.float64]:
        """Computes AUC_t of each strategy, from 0 to 1: (arms,)."""
        counts, areas = np.zeros(len(self.arms)), np.zeros(len(self.arms))
        for arm, gained in self._window:
            counts[arm] += 1
            areas[arm] += counts[arm] * gained
        return 2.0 * areas / np.maximum(counts * (counts + 1), 1)

    def divide_shares(self, n: int, able: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Splits `n` candidates among the strategies that are able to propose: (arms,)."""
        gains = self.gains()
        used = np.bincount([arm for arm, _ in self._window], minlength=len(self.arms)).astype(np.float64)
        used += np.bincount(list(self._arm_by_candidate.values()), minlength=len(self.arms))
        shares = np.zeros(len(self.arms), np.int64)
        for _ in range(n):
            known = np.maximum(used, 1e-9)  # a strategy without results comes first
            bonus = np.sqrt(2.0 * math.log2(max(2.0, float(used.sum()))) / known)
            worth = np.where(able, gains + self.options.exploration * bonus, -np.inf)
            best = np.flatnonzero(worth == worth.max())
            arm = int(best[self.rng.integers(len(best))])
            shares[arm] += 1
            used[arm] += 1
        return shares

    def _arm(self, name: str) -> SearchStrategy:
        arm = get(name)(self.space, self.scorer, np.random.default_rng(int(self.rng.integers(1 << 62))))
        if isinstance(arm, GuidedSearch):
            arm.seen_candidates = arm.sampler.seen_candidates = self._seen_candidates
        return arm


def _names(arms: str) -> list[str]:
    """Splits a text into names of strategies.

    Raises:
        ValueError: there is no name, a name occurs twice, or a name is no strategy or a bandit itself.
    """
    names = [name.strip() for name in arms.split(",") if name.strip()]
    if not names or "bandit" in names or len(set(names)) < len(names):
        raise ValueError(f"`arms` must be different strategies other than bandit, but got arms={arms!r}")
    for name in names:
        if is_own(name):
            get(name)
        elif name not in STRATEGIES:
            known = ", ".join(other for other in STRATEGIES if other != "bandit")
            raise ValueError(f"`arms` must be among {known}, but got {name!r}{nearest(name, STRATEGIES)}")
    return names
