"""Searches of measured spaces: every answer is looked up, so that thousands of searches cost no measurement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.lab.dataset.measured_space import MeasuredSpace
from autotune.tuner import search
from autotune.tuner.scorer import ModelScorer
from costmodel.models import registry

EXPLORATION = 2.0
"""Standard deviations that are added to the scores of models that know them, where nothing else is said."""


@dataclass(frozen=True)
class Method:
    """A way to search.

    Attributes:
        strategy: a name of `autotune.tuner.search.STRATEGIES`, with its options.
        model: a name of `costmodel.models.registry`, with its options; strategies that ask none leave it alone.
        batch: configurations asked for at a time, after which the model is fitted anew.
        exploration: see `ModelScorer`.
    """

    strategy: str
    model: str
    strategy_options: Mapping[str, Any] = field(default_factory=dict)
    model_options: Mapping[str, Any] = field(default_factory=dict)
    batch: int = 8
    exploration: float = 0.0


@dataclass(frozen=True)
class PlayedSearch:
    """A finished search of a measured space.

    Attributes:
        indices: indices of the configurations in the measured space, in the order of asking, (trials,).
        seconds: seconds of each configuration, (trials,); NaN for a failure.
        elapsed_seconds: seconds that measuring had taken after each, (trials,).
    """

    indices: NDArray[np.intp]
    seconds: NDArray[np.float64]
    elapsed_seconds: NDArray[np.float64]

    @property
    def best(self) -> NDArray[np.float64]:
        """Seconds of the fastest after each trial, (trials,); NaN before the first that works."""
        found: NDArray[np.float64] = np.fmin.accumulate(self.seconds)
        return found


def play(
    measured_space: MeasuredSpace,
    method: Method,
    seed: int,
    trials: int,
    budget: float = np.inf,
    until_best: bool = False,
) -> PlayedSearch:
    """Searches until trials, budget or configurations are used up.

    Args:
        measured_space: space that answers are looked up in.
        method: method of the search.
        seed: seed of all random draws.
        trials: most configurations to ask for.
        budget: most seconds of measuring; the configuration that goes beyond counts.
        until_best: whether the search ends once it has the best configuration, as nothing later can improve on it.

    Raises:
        ValueError: an unknown strategy or model, or an option out of range.
    """
    draws, guide = (np.random.default_rng([seed, place]) for place in range(2))
    space = measured_space.searchable
    model = registry.make(method.model, dict(method.model_options), seed)
    scorer = ModelScorer(space, model, guide, exploration=method.exploration, features="knobs")
    strategy = search.get(method.strategy)(space, scorer, draws, **method.strategy_options)
    rows: list[NDArray[np.intp]] = []
    spent, left = 0.0, min(trials, len(measured_space))
    while left > 0 and spent < budget:
        asked = strategy.ask(min(method.batch, left))
        if not asked:
            break
        at = measured_space.find_indices(np.array([candidate.choices for candidate in asked], np.int32))
        rows.append(at)
        seconds = measured_space.seconds[at]
        spent += float(measured_space.cost_seconds[at].sum())
        left -= len(asked)
        if until_best and np.any(seconds <= measured_space.best):
            break
        strategy.tell(asked, seconds)
        scorer.observe(asked, seconds.tolist())
        scorer.refit()
    every = np.concatenate(rows) if rows else np.empty(0, np.intp)
    return PlayedSearch(every, measured_space.seconds[every], np.cumsum(measured_space.cost_seconds[every]))
