"""Costs of algorithms other than the plain definition: products, memory and accuracy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from search_space.operators import strassen, winograd
from search_space.operators.base import Args

RELATIVE_ERROR: Mapping[str, float] = {**winograd.RELATIVE_ERROR, strassen.STRASSEN: strassen.RELATIVE_ERROR}
"""Greatest error to expect of algorithms that are not exact to rounding, as a share of the greatest output."""

MIXES_ROWS = (strassen.STRASSEN,)
"""Algorithms whose rounding errors in an output depend on other rows and columns than its own.

Rows of a batch are often inputs of different users, so that no default may let one change another's answer.
"""

KNOWN_SIZES = (strassen.STRASSEN,)
"""Algorithms whose definition depends on the sizes beyond numbers: they cut rows into halves."""

USUAL_ERROR = 1e-2
"""Greatest error of algorithms that are chosen if no error is specified."""


BY_NAME = tuple(sorted({*MIXES_ROWS, *(name for name, largest in RELATIVE_ERROR.items() if largest > USUAL_ERROR)}))
"""Algorithms that are chosen only where they are asked for by name."""


def check_names(names: Sequence[str]) -> None:
    """Refuses names of algorithms that are not chosen by name.

    Raises:
        ValueError: a name is not in `BY_NAME`.
    """
    for name in names:
        if name not in BY_NAME:
            raise ValueError(f"`algorithms` must be among {', '.join(BY_NAME)}, but got {name!r}")


def within(algorithms: Sequence[str], error: float | None = None, explicit: Sequence[str] = ()) -> list[str]:
    """Keeps the algorithms that may be chosen.

    Args:
        algorithms: names to choose from.
        error: largest relative error that is allowed; None: `USUAL_ERROR`, and any algorithm in `explicit`.
        explicit: algorithms that are selected by name, such as those of `BY_NAME`, which no default chooses.
    """
    most = USUAL_ERROR if error is None else error

    def is_allowed(name: str) -> bool:
        if name in MIXES_ROWS and name not in explicit:
            return False
        return RELATIVE_ERROR.get(name, 0.0) <= most or (error is None and name in explicit)

    return [name for name in algorithms if is_allowed(name)]


def products(args: Args, algorithm: str) -> float:
    """Returns the products of an algorithm as a share of those of the definition."""
    if algorithm == strassen.STRASSEN:
        return strassen.PRODUCTS / 8
    return winograd.product_share(args, algorithm)


def extra_bytes(args: Args, weight: Sequence[int], algorithm: str) -> int:
    """Returns the bytes by which an algorithm's transformed weight, made before the first call, exceeds the weight."""
    if algorithm == strassen.STRASSEN:
        return strassen.constant_bytes(weight)
    return winograd.constant_bytes(args, algorithm)
