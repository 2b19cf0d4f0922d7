"""What algorithms that are not the plain definition cost: products, memory and accuracy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from search_space.operators import strassen, winograd
from search_space.operators.base import Args

RELATIVE_ERROR: Mapping[str, float] = {**winograd.RELATIVE_ERROR, strassen.STRASSEN: strassen.RELATIVE_ERROR}
"""Greatest error to expect of algorithms that are not exact to rounding, as a share of the greatest output."""

KNOWN_SIZES = (strassen.STRASSEN,)
"""Algorithms that are not one definition at all sizes: they cut rows into halves."""

USUAL_ERROR = 1e-2
"""Greatest error of algorithms that are chosen where nothing is said of errors."""


def within(algorithms: Sequence[str], error: float | None = None) -> list[str]:
    """Those of some algorithms whose greatest error is no more than `error`; by default, than `USUAL_ERROR`."""
    most = USUAL_ERROR if error is None else error
    return [name for name in algorithms if RELATIVE_ERROR.get(name, 0.0) <= most]


def products(args: Args, algorithm: str) -> float:
    """Products of an algorithm as a share of those of the definition."""
    if algorithm == strassen.STRASSEN:
        return strassen.PRODUCTS / 8
    return winograd.product_share(args, algorithm)


def extra_bytes(args: Args, weight: Sequence[int], algorithm: str) -> int:
    """Bytes by which what an algorithm makes of a weight of that shape, before the first call, is larger than it."""
    if algorithm == strassen.STRASSEN:
        return strassen.constant_bytes(weight)
    return winograd.constant_bytes(args, algorithm)
