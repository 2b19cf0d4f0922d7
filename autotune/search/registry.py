"""Search strategies by name, imported when first asked for. A new one is a file and an entry here."""

from __future__ import annotations

from importlib import import_module

from autotune.naming import nearest
from autotune.search.base import SearchStrategy

STRATEGIES: dict[str, str] = {
    "annealing": "autotune.search.annealing:Annealing",
    "bandit": "autotune.search.bandit:Bandit",
    "beam": "autotune.search.beam:Beam",
    "cmaes": "autotune.search.optuna_samplers:CmaEs",
    "evolution": "autotune.search.evolution:Evolution",
    "nsga2": "autotune.search.optuna_samplers:Nsga2",
    "random": "autotune.search.random:RandomSearch",
    "tpe": "autotune.search.optuna_samplers:Tpe",
}
"""Name -> where the class is, made as `strategy(space, scorer, rng, **options)`."""


def get(name: str) -> type[SearchStrategy]:
    """Class of the strategy called `name`.

    Raises:
        ValueError: no such strategy; names the nearest one.
    """
    if name not in STRATEGIES:
        hint = nearest(name, STRATEGIES)
        names = ", ".join(STRATEGIES)
        raise ValueError(f"`strategy` must be one of {names}, but got strategy={name!r}{hint}")
    module, _, attribute = STRATEGIES[name].partition(":")
    kind: type[SearchStrategy] = getattr(import_module(module), attribute)
    return kind
