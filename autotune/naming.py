"""File names made from arbitrary names, nested values by dotted name, and short texts of values."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from reprlib import Repr
from typing import Any

_BRIEF = Repr()
_BRIEF.maxstring = _BRIEF.maxother = _BRIEF.maxlong = 100
_BRIEF.maxlevel = 3

NAME = r"^[\w.-]*[\w-][\w.-]*$"
"""Pattern of names that are a file's or a folder's own: dots alone would be another folder."""
LONGEST = 150
"""Characters of a name; file systems allow 255 bytes, suffixes included."""


def file_name(name: str) -> str:
    """Makes a file name of an arbitrary name: the name itself where it is legal, else a shortened one with a digest."""
    if len(name.encode(errors="replace")) <= LONGEST and re.fullmatch(NAME, name):
        return name
    plain = re.sub(r"[^\w.-]+", "_", name).strip(".").encode()[: LONGEST - 20].decode(errors="ignore")
    return f"{plain}-{hashlib.sha256(name.encode(errors='replace')).hexdigest()[:16]}"


def brief(value: Any) -> str:
    """Returns the `repr` of a value, only the beginning of a long or deep one."""
    return _BRIEF.repr(value)


def leaves(nested: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Lists the values of nested data by dotted name; an empty mapping is a value."""
    for name, value in nested.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
