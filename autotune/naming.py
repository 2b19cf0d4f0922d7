"""Names: wrong ones answered with the nearest right one, what files are called by them; wrong values in a few words."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from difflib import get_close_matches
from reprlib import Repr
from typing import Any

_BRIEF = Repr()
_BRIEF.maxstring = _BRIEF.maxother = _BRIEF.maxlong = 100
_BRIEF.maxlevel = 3

NAME = r"^[\w.-]*[\w-][\w.-]*$"
"""Names that are a file's or a folder's own: dots alone would be another folder."""
LONGEST = 150
"""Characters of a name; file systems have 255 bytes for it with what is added."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Words that suggest the known name nearest to a wrong one; empty where none is near."""
    near = get_close_matches(name, list(known), 1)
    return f"; did you mean {near[0]!r}?" if near else ""


def file_name(name: str) -> str:
    """What a file is called by a name that may hold anything: the name itself where it is a file's name already."""
    if len(name.encode(errors="replace")) <= LONGEST and re.fullmatch(NAME, name):
        return name
    plain = re.sub(r"[^\w.-]+", "_", name).strip(".").encode()[: LONGEST - 20].decode(errors="ignore")
    return f"{plain}-{hashlib.sha256(name.encode(errors='replace')).hexdigest()[:16]}"


def brief(value: Any) -> str:
    """`repr` of a value, of a long or deep one only its beginning."""
    return _BRIEF.repr(value)
