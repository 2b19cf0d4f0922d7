"""Strict readers of JSON values: each returns the value or raises a `TypeError` that says what it must be."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from measure.errors import ErrorClass, OutcomeError

_INTEGERS = 1 << 63
_ERRORS = frozenset(ErrorClass)


def text(value: Any) -> str:
    """A string."""
    if not isinstance(value, str):
        raise TypeError("a string")
    return value


def integer(value: Any) -> int:
    """An integer of 64 bits; booleans are none."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError("an integer")
    if not -_INTEGERS <= value < _INTEGERS:
        raise TypeError("an integer of 64 bits")
    return value


def number(value: Any) -> float:
    """A number; booleans are none."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise TypeError("a number")
    try:
        return float(value)
    except OverflowError:
        raise TypeError("a number of 64 bits") from None


def measured(value: Any) -> float:
    """A number, or null for what was not measured: NaN."""
    return math.nan if value is None else number(value)


def numbers(value: Any) -> tuple[float, ...]:
    """A list of numbers."""
    if not isinstance(value, list | tuple):
        raise TypeError("a list of numbers")
    return tuple(map(number, value))


def figures(value: Any) -> dict[str, float]:
    """A JSON object of numbers by name; which are finite is `measure.outcome`'s to say."""
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
        raise TypeError("an object of numbers")
    return {name: integer(given) if isinstance(given, int) else number(given) for name, given in value.items()}


def span(value: Any) -> tuple[float, float] | None:
    """Start and end in seconds, or null."""
    if value is None:
        return None
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise TypeError("a start and an end")
    return number(value[0]), number(value[1])


def mapping(value: Any) -> dict[str, Any]:
    """A JSON object."""
    if not isinstance(value, dict):
        raise TypeError("an object")
    return value


def steps(value: Any) -> tuple[dict[str, Any], ...]:
    """A list of JSON objects."""
    if not isinstance(value, list):
        raise TypeError("a list of objects")
    return tuple(map(mapping, value))


def error_class(value: Any) -> ErrorClass:
    """An error class by its value."""
    if not isinstance(value, str) or value not in _ERRORS:
        raise TypeError(f"one of {', '.join(ErrorClass)}")
    return ErrorClass(value)


def read(reader: Callable[[Any], Any], name: str, value: Any) -> Any:
    """Value of a field through its reader.

    Raises:
        OutcomeError: names the field, the rule and the value.
    """
    try:
        return reader(value)
    except TypeError as error:
        raise OutcomeError(f"`{name}` must be {error}, but got {name}={short(repr(value))}") from None


def short(text: bytes | str) -> str:
    """Beginning of a text, for messages."""
    shown = text.decode(errors="replace") if isinstance(text, bytes) else text
    shown = shown.strip()
    return shown if len(shown) <= 60 else shown[:60] + "..."
