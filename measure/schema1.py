"""Lines of the first schema of records: all fields side by side, and provenance as one text."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from measure import typed
from measure.provenance import Kind, check_length

SCHEMA = "autotune.record/1"
HEAD = b'{"algorithm":'
"""Beginning of every line written by that version: fields are sorted by name."""


def parts(data: Mapping[str, Any], trial: frozenset[str], outcome: frozenset[str]) -> dict[str, Any]:
    """Converts a line to the form of the current schema.

    Args:
        data: fields of a line, all of which are known.
        trial, outcome: names of the fields of these.

    Raises:
        OutcomeError: a text is too long.
    """
    provenance = {name: data[name] for name in ("sketch", "order", "time") if name in data}
    return {
        "trial": {name: data[name] for name in data.keys() & trial},
        "outcome": {name: data[name] for name in data.keys() & outcome},
        "provenance": {**provenance, **parse_provenance(data["provenance"])},
    }


def parse_provenance(text: Any) -> dict[str, Any]:
    """Parses the text of a provenance to fields of `Provenance`; a text that no search has written becomes its `note`.

    Searches wrote `STRATEGY round=N score=X transfer choices=I,J`, of which all but the strategy may be missing.

    Raises:
        OutcomeError: the value is not a text, or too long.
    """
    check_length("provenance", typed.convert_value(str, "provenance", text))
    if text in _KINDS:
        return {"kind": _KINDS[text]}
    strategy, *words = text.split(" ")
    values = {name: value for name, assigned, value in (word.partition("=") for word in words) if assigned}
    if not values.keys() & {"round", "score", "choices"}:
        return {"note": text}
    assigned: dict[str, Any] = {"kind": Kind.search, "strategy": strategy, "transferred": "transfer" in words}
    if "round" in values and values["round"].isdecimal():
        assigned["round"] = int(values["round"])
    if "score" in values:
        with suppress(ValueError):
            assigned["score"] = float(values["score"])
    if "choices" in values:
        assigned["choices"] = [int(part) for part in values["choices"].split(",") if part.isdecimal()]
    return assigned


_KINDS = {"finals": Kind.final, "again in turns": Kind.retimed}
