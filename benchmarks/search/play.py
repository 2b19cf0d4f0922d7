"""One search on one table: its measurements in the order of asking, with the parts that the tuner itself uses."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from autotune.config import Search
from autotune.tuner import search
from autotune.tuner.scorer import ModelScorer
from autotune.tuner.search.base import SearchStrategy
from autotune.tuner.settings import Settings
from benchmarks.search.replay import ReplayTable
from benchmarks.search.uniform import UniformSearch
from costmodel.features import NAMES, SECONDS
from costmodel.models import registry
from costmodel.models.base import CostModel
from costmodel.models.registry import make as make_model
from costmodel.pretrained import SHIPPED_MODEL, open_pretrained

UNIFORM = "uniform"
"""Name of the baseline: random search, uniform over the legal space."""
BLIND = (UNIFORM, "random")
"""Strategies that ask no scorer, and so are played with no model."""
NOISE_ALONE = 1e9
"""Noise in which the roofline's order is lost."""
Knows = Literal["both", "learned"]
_OF_ESTIMATE = [place for place, name in enumerate(NAMES) if name.startswith("roofline.") or place == SECONDS]


@dataclass(frozen=True)
class Method:
    """A way to search.

    Attributes:
        strategy: `uniform`, or a name of `autotune.tuner.search.STRATEGIES`, with its options.
        model: a name of `costmodel.models.registry`, with its options; empty for strategies that ask none.
        knows: `both`, the roofline's estimate and measurements; `learned`, measurements alone: candidates are random
            until the model has learned, and features made of the estimate are 0. A model that learns nothing,
            `roofline`, shows the estimate alone.
        pretrained: whether the shipped pretrained model orders candidates in place of the roofline, as by default, on
            targets that it has learned of.
    """

    strategy: str
    model: str = ""
    strategy_options: Mapping[str, Any] = field(default_factory=dict)
    model_options: Mapping[str, Any] = field(default_factory=dict)
    knows: Knows = "both"
    pretrained: bool = False

    @property
    def name(self) -> str:
        """Name of the method in results."""
        name = f"{self.strategy} + {self.model}" if self.model else self.strategy
        return f"{name}, pretrained" if self.pretrained else name if self.knows == "both" else f"{name}, no estimate"

    @property
    def guided(self) -> bool:
        """Tells whether a model guides the search."""
        return bool(self.model)


@dataclass(frozen=True)
class PlayedSearch:
    """A finished search.

    Attributes:
        seconds: seconds by the table's repeat, which the search has not seen, in the order of asking, (trials,); NaN
            for a failure. It ends at the best candidate of the table, or where the trials or the candidates are used
            up.
        rank_accuracy: accuracy of the model before each round, see `ModelScorer`, (rounds,).
        wall: seconds of processor time that the search took.
    """

    seconds: NDArray[np.float64]
    rank_accuracy: NDArray[np.float64]
    wall: float


def play(table: ReplayTable, method: Method, seed: int, trials: int, batch: int = 32) -> PlayedSearch:
    """Searches a table until its best candidate is found.

    Generators are those of a run of the tuner with this seed, so that a search goes as it would there.

    Args:
        table: the answers.
        method: method of the search.
        seed: seed of every random draw.
        trials: most candidates to ask for.
        batch: candidates of a round, after which a model is fitted anew.

    Raises:
        ReplayError: the strategy asked for a candidate that is not in the table.
        ValueError: an unknown strategy or model, or an option out of range.
    """
    start = time.process_time()
    settings = Settings(trials=trials, seed=seed, search=Search(batch=batch))
    strategy, scorer = _make(table, method, settings)
    measured: list[NDArray[np.float64]] = []
    ranked: list[float] = []
    left = min(trials, len(table.seconds))
    while left > 0:
        asked = strategy.ask(min(batch, left))
        if not asked:
            break
        places = table.look_up(asked)
        seconds, judged = table.seconds[places], table.judging_seconds[places]
        measured.append(judged)
        left -= len(asked)
        if np.nanmin(judged, initial=np.inf) <= table.best:
            break
        strategy.tell(asked, seconds)
        if scorer is not None:
            scorer.observe(asked, seconds.tolist())
            ranked.append(scorer.rank_accuracy)
            scorer.refit()
    found = np.concatenate(measured) if measured else np.empty(0)
    at = np.flatnonzero(found <= table.best)
    return PlayedSearch(found[: int(at[0]) + 1] if len(at) else found, np.array(ranked), time.process_time() - start)


def _make(table: ReplayTable, method: Method, settings: Settings) -> tuple[SearchStrategy, ModelScorer | None]:
    key = table.workload.key
    kind: Callable[..., SearchStrategy] = UniformSearch if method.strategy == UNIFORM else search.get(method.strategy)
    draws = settings.generator(key, "search")
    if not method.guided:
        return kind(table.space, _no_score, draws, **method.strategy_options), None
    options = dict(method.model_options)
    alone = method.knows == "learned"
    if alone and "prior" in inspect.signature(registry.get(method.model)).parameters:
        options["prior"] = False
    model = make_model(method.model, options, settings.seed)
    if alone:
        model = WithoutEstimate(model)
    noise = NOISE_ALONE if alone else None
    known = open_pretrained(SHIPPED_MODEL, table.target) if method.pretrained else None
    guide = settings.generator(key, "guide")
    scorer = ModelScorer(table.space, model, guide, extractor=table.extractor, pretrained_model=known, noise=noise)
    return kind(table.space, scorer, draws, **method.strategy_options), scorer


class WithoutEstimate(CostModel):
    """A model that does not see features made of the roofline's estimate.

    Args:
        model: model that learns and predicts, with 0 for these features.
    """

    def __init__(self, model: CostModel) -> None:
        self.learner = model

    def fit(self, features: Sequence[NDArray[np.float32]], throughput: NDArray[np.float64]) -> None:
        self.learner.fit([_without_estimate(of) for of in features], throughput)

    def predict(self, features: NDArray[np.float32]) -> NDArray[np.float64]:
        return self.learner.predict(_without_estimate(features))


def _without_estimate(features: NDArray[np.float32]) -> NDArray[np.float32]:
    found = features.copy(order="K")
    found[..., _OF_ESTIMATE] = 0
    return found


def _no_score(sketch: int, choices: NDArray[np.int32]) -> NDArray[np.float64]:
    raise AssertionError("a strategy that asks no scorer must not ask one, but it did")
