"""What files are called by names that may hold anything; nested values by dotted name, wrong ones in a few words."""

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
"""Names that are a file's or a folder's own: dots alone would be another folder."""
LONGEST = 150
"""Characters of a name; file systems have 255 bytes for it with what is added."""


def file_name(name: str) -> str:
    """What a file is called by a name that may hold anything: the name itself where it is a file's name already."""
    if len(name.encode(errors="replace")) <= LONGEST and re.fullmatch(NAME, name):
        return name
    plain = re.sub(r"[^\w.-]+", "_", name).strip(".").encode()[: LONGEST - 20].decode(errors="ignore")
    return f"{plain}-{hashlib.sha256(name.encode(errors='replace')).hexdigest()[:16]}"


def brief(value: Any) -> str:
    """`repr` of a value, of a long or deep one only its beginning."""
    return _BRIEF.repr(value)


def leaves(nested: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Values of nested data by dotted name; an empty mapping is a value."""
    for name, value in nested.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
