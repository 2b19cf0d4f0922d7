"""Search strategies by name, imported on first use. A new one is a file and an entry here.

A strategy from outside needs no entry: its name is `module:Class`, or `FILE.py:Class` by the path of its file.
"""

from __future__ import annotations

from dataclasses import is_dataclass
from importlib import import_module
from inspect import isabstract

from autotune.tuner.search.base import SearchStrategy
from search_space.operators.checks import choice
from search_space.user_code import absolute_name, attribute, is_own

STRATEGIES: dict[str, str] = {
    "annealing": "autotune.tuner.search.annealing:Annealing",
    "bandit": "autotune.tuner.search.bandit:Bandit",
    "beam": "autotune.tuner.search.beam:Beam",
    "cmaes": "autotune.tuner.search.optuna_samplers:CmaEs",
    "evolution": "autotune.tuner.search.evolution:Evolution",
    "listing": "autotune.tuner.search.listing:Listing",
    "nsga2": "autotune.tuner.search.optuna_samplers:Nsga2",
    "proposer": "autotune.tuner.search.proposer:Proposer",
    "random": "autotune.tuner.search.random:RandomSearch",
    "tpe": "autotune.tuner.search.optuna_samplers:Tpe",
}
"""Name -> module and class, which is called as `strategy(space, scorer, rng, **options)`."""

_OWN: dict[str, type[SearchStrategy]] = {}  # `absolute_name` a name -> class, of strategies from outside


def get(strategy: str | type[SearchStrategy]) -> type[SearchStrategy]:
    """Returns the class of a strategy by its name, or a class itself; it runs code from `module:Class` or
    `FILE.py:Class`.

    Raises:
        ValueError: there is no such strategy (names the nearest), or the class is no strategy.
    """
    if not isinstance(strategy, str):
        return _check_strategy(strategy, strategy)
    if is_own(strategy):
        place = absolute_name(strategy)
        if place not in _OWN:
            _OWN[place] = _check_strategy(attribute(strategy, "strategy"), strategy)
        return _OWN[place]
    module, _, found = STRATEGIES[choice("strategy", strategy, STRATEGIES, ", or module:Class")].partition(":")
    kind: type[SearchStrategy] = getattr(import_module(module), found)
    return kind


def strategy_name(strategy: str | type[SearchStrategy]) -> str:
    """Returns the name in records of a strategy that is given by its name or as a class."""
    return strategy if isinstance(strategy, str) else f"{strategy.__module__}:{strategy.__qualname__}"


def _check_strategy(kind: object, value: object) -> type[SearchStrategy]:
    if not isinstance(kind, type) or not issubclass(kind, SearchStrategy) or isabstract(kind):
        raise ValueError(f"`strategy` must name a subclass of SearchStrategy, but got strategy={value!r}")
    if not is_dataclass(getattr(kind, "Options", None)):
        raise ValueError(f"`strategy` must have a dataclass `Options`, but {kind.__name__} has none")
    return kind
