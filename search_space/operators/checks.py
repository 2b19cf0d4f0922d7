"""Checks of arguments: each returns the value in its canonical form or states the rule and the value."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from difflib import get_close_matches
from numbers import Integral, Real
from typing import Any


def nearest(name: object, candidates: Iterable[str]) -> str:
    """Suggests the known name nearest to a wrong one, as words; "" if none is near."""
    near = get_close_matches(str(name), list(candidates), 1)
    return f"; did you mean {near[0]!r}?" if near else ""


def integer(name: str, value: Any, least: int = 1) -> int:
    """Checks for an integer of at least `least`."""
    if not isinstance(value, Integral) or isinstance(value, bool) or int(value) < least:
        raise ValueError(f"`{name}` must be an integer of at least {least}, but got {name}={value!r}")
    return int(value)


def sizes(least: int = 1, **values: Any) -> dict[str, int]:
    """Checks for integers of at least `least`, by name."""
    return {name: integer(name, value, least) for name, value in values.items()}


def spread(rank: int, least: int = 1, **values: Any) -> dict[str, tuple[int, ...]]:
    """Spreads values over `rank` axes, by name: one integer for each axis, or a single integer for all."""
    return {name: _spread(name, value, rank, least) for name, value in values.items()}


def _spread(name: str, value: Any, rank: int, least: int) -> tuple[int, ...]:
    if isinstance(value, Integral):
        return (integer(name, value, least),) * rank
    if not _is_list(value) or len(value) != rank:
        raise ValueError(f"`{name}` must be an integer or {rank} of them, but got {name}={value!r}")
    return tuple(integer(name, v, least) for v in value)


def shape(name: str, value: Any) -> tuple[int, ...]:
    """Checks for a shape of at least one dimension, each at least 1."""
    if not _is_list(value) or not value:
        raise ValueError(f"`{name}` must be a list of at least one integer, but got {name}={value!r}")
    return tuple(integer(name, v) for v in value)


def axes(name: str, value: Any, rank: int) -> tuple[int, ...]:
    """Checks for distinct axes of an array of `rank` dimensions; returns them ascending, all at least 0."""
    listed = [value] if isinstance(value, Integral) else value
    known = range(-rank, rank)
    right = _is_list(listed) and all(v in known and not isinstance(v, bool) for v in listed)
    found = sorted({int(v) % rank for v in listed}) if right else []
    if not found or len(found) != len(listed):
        raise ValueError(f"`{name}` must be distinct axes of {rank} dimensions, but got {name}={value!r}")
    return tuple(found)


def choice(
    name: str, value: Any, options: Collection[str], where: str = "", error: type[Exception] = ValueError
) -> str:
    """Checks for one of a few names."""
    if value not in options:
        raise error(
            f"`{name}` must be one of {', '.join(options)}{where}, but got {name}={value!r}{nearest(value, options)}"
        )
    return str(value)


def flag(name: str, value: Any) -> bool:
    """Checks for a truth value."""
    if not isinstance(value, bool):
        raise ValueError(f"`{name}` must be true or false, but got {name}={value!r}")
    return value


def positive(name: str, value: Any) -> float:
    """Checks for a finite positive number."""
    if not isinstance(value, Real) or isinstance(value, bool) or not 0 < float(value) < float("inf"):
        raise ValueError(f"`{name}` must be a positive number, but got {name}={value!r}")
    return float(value)


def not_negative(name: str, value: Any) -> float:
    """Checks for a finite number of at least 0."""
    try:
        number = float(value) if isinstance(value, Real) and not isinstance(value, bool) else math.nan
    except OverflowError:  # an integer beyond the floats
        number = math.inf
    if not 0 <= number < math.inf:
        raise ValueError(f"`{name}` must be 0 or a positive number, but got {name}={value!r:.40}")
    return number


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)
