"""Strict conversion of plain data to typed fields; an error names the field, the rule and the value."""

from __future__ import annotations

import math
import types
from collections.abc import Mapping
from dataclasses import fields
from enum import Enum
from functools import cache
from typing import Any, Literal, TypedDict, Union, get_args, get_origin, get_type_hints

import msgspec

from measure.errors import OutcomeError

_BITS = 1 << 63  # integers of records have 64 bits, with sign
_WORDS = {"int": "an integer", "float": "a number", "int | float": "a number", "str": "a string", "object": "an object"}


def read(kind: type, data: Mapping[str, Any]) -> dict[str, Any]:
    """Converts `data` to values of the dataclass's fields; null becomes NaN for fields whose default is NaN.

    Raises:
        OutcomeError: names the field, the rule and the value.
    """
    table, hints, optional, integers = _table(kind)
    try:
        values: dict[str, Any] = msgspec.convert(data, table)
    except msgspec.ValidationError:
        values = {name: convert_value(hints[name], name, data[name]) for name in hints.keys() & data.keys()}
    for name in optional:
        if values.get(name, 0.0) is None:
            values[name] = math.nan
    for name in integers:
        if not -_BITS <= values.get(name, 0) < _BITS:
            convert_value(int, name, values[name])
    return values


def convert_value(hint: Any, name: str, value: Any, rule: str = "") -> Any:
    """Converts a value to the type `hint`, which messages call `rule`; integers have 64 bits.

    Raises:
        OutcomeError: the value has another type; names it as `name`.
    """
    try:
        converted = msgspec.convert(value, hint)
    except msgspec.ValidationError as error:
        said, _, inside = str(error).partition(" - at `")
        rule = rule or (inside and _WORDS.get(said.removeprefix("Expected `").partition("`")[0])) or _rule(hint)
    else:
        if type(converted) is not int or -_BITS <= converted < _BITS:
            return converted
        rule = "an integer of 64 bits"
    raise OutcomeError(f"`{name}` must be {rule}, but got {name}={short(repr(value))}")


def short(text: bytes | str) -> str:
    """Shortens a text for messages."""
    shown = text.decode(errors="replace") if isinstance(text, bytes) else text
    shown = shown.strip()
    return shown if len(shown) <= 60 else shown[:60] + "..."


@cache
def _table(kind: type) -> tuple[Any, dict[str, Any], tuple[str, ...], tuple[str, ...]]:
    """Returns a `TypedDict` of a dataclass's fields, their types, and names: of those that may be NaN, of integers."""
    optional = tuple(f.name for f in fields(kind) if isinstance(f.default, float) and math.isnan(f.default))
    hints = get_type_hints(kind)
    hints = {f.name: hints[f.name] | None if f.name in optional else hints[f.name] for f in fields(kind)}
    integers = tuple(name for name, hint in hints.items() if hint is int)
    return TypedDict(kind.__name__, hints, total=False), hints, optional, integers  # type: ignore[operator]


def _rule(hint: Any) -> str:
    """Describes a type in words."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(_rule(part) for part in inner if part is not type(None))
    if origin is Literal:
        return f"one of {', '.join(map(str, inner))}"
    if isinstance(hint, type) and issubclass(hint, Enum):
        return f"one of {', '.join(str(item.value) for item in hint)}"
    if origin is None:
        return _WORDS.get(getattr(hint, "__name__", ""), {bool: "a boolean"}.get(hint, "a value"))
    if issubclass(origin, Mapping):
        return "an object" if inner[1] is Any else "an object of numbers"
    return f"a list of {_rule(inner[0]).partition(' ')[2]}s"
