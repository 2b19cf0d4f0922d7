"""Search strategies by name, imported when first asked for. A new one is a file and an entry here."""

from __future__ import annotations

from collections.abc import Callable

from autotune.naming import nearest
from autotune.search.guided import GuidedSearch


def _random() -> type[GuidedSearch]:
    from autotune.search.random import RandomSearch

    return RandomSearch


def _annealing() -> type[GuidedSearch]:
    from autotune.search.annealing import Annealing

    return Annealing


def _evolution() -> type[GuidedSearch]:
    from autotune.search.evolution import Evolution

    return Evolution


STRATEGIES: dict[str, Callable[[], type[GuidedSearch]]] = {
    "annealing": _annealing,
    "evolution": _evolution,
    "random": _random,
}
"""Name -> importer of the class, made as `strategy(space, scorer, rng, **options)`."""


def get(name: str) -> type[GuidedSearch]:
    """Class of the strategy called `name`.

    Raises:
        ValueError: no such strategy; names the nearest one.
    """
    if name not in STRATEGIES:
        hint = nearest(name, STRATEGIES)
        names = ", ".join(STRATEGIES)
        raise ValueError(f"`strategy` must be one of {names}, but got strategy={name!r}{hint}")
    return STRATEGIES[name]()
