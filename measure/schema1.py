"""Lines of the first schema of records: all fields side by side, what proposed the trial as one text."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from measure import typed
from measure.provenance import Kind, check_length

SCHEMA = "autotune.record/1"
HEAD = b'{"algorithm":'
"""How every line begins that was written so."""


def parts(data: Mapping[str, Any], trial: frozenset[str], outcome: frozenset[str]) -> dict[str, Any]:
    """The same as a line of today's schema holds it.

    Args:
        data: a line's fields, all of which are known.
        trial, outcome: names of the fields of these.

    Raises:
        OutcomeError: a text that is too long.
    """
    provenance = {name: data[name] for name in ("sketch", "order", "time") if name in data}
    return {
        "trial": {name: data[name] for name in data.keys() & trial},
        "outcome": {name: data[name] for name in data.keys() & outcome},
        "provenance": {**provenance, **provenance_of(data["provenance"])},
    }


def provenance_of(text: Any) -> dict[str, Any]:
    """Fields of a `Provenance` that a text gives; one that no search has written is its `note`.

    Searches wrote `STRATEGY round=N score=X transfer choices=I,J`, of which all but the strategy may be missing.

    Raises:
        OutcomeError: it is no text, or too long.
    """
    check_length("provenance", typed.value_of(str, "provenance", text))
    if text in _KINDS:
        return {"kind": _KINDS[text]}
    strategy, *words = text.split(" ")
    values = {name: value for name, found, value in (word.partition("=") for word in words) if found}
    if not values.keys() & {"round", "score", "choices"}:
        return {"note": text}
    found: dict[str, Any] = {"kind": Kind.search, "strategy": strategy, "transferred": "transfer" in words}
    if "round" in values and values["round"].isdecimal():
        found["round"] = int(values["round"])
    if "score" in values:
        with suppress(ValueError):
            found["score"] = float(values["score"])
    if "choices" in values:
        found["choices"] = [int(part) for part in values["choices"].split(",") if part.isdecimal()]
    return found


_KINDS = {"finals": Kind.final, "again in turns": Kind.retimed}
