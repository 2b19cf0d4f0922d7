"""Wrong names answered with the nearest right one, wrong values shown in a few words."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from reprlib import Repr
from typing import Any

_BRIEF = Repr()
_BRIEF.maxstring = _BRIEF.maxother = _BRIEF.maxlong = 100
_BRIEF.maxlevel = 3


def nearest(name: str, known: Iterable[str]) -> str:
    """Words that suggest the known name nearest to a wrong one; empty where none is near."""
    near = get_close_matches(name, list(known), 1)
    return f"; did you mean {near[0]!r}?" if near else ""


def brief(value: Any) -> str:
    """`repr` of a value, of a long or deep one only its beginning."""
    return _BRIEF.repr(value)
