"""Strict parsing of a user's JSON: it refuses what `json` accepts silently, and has one kind of error."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

INTEGERS = range(-(1 << 63), 1 << 63)
"""Integers of 64 bits."""


def loads(text: str | bytes, finite: bool = True) -> Any:
    """Parses the value in a JSON text.

    Args:
        text: text in JSON.
        finite: whether NaN and infinities, which JSON does not have, are refused.

    Raises:
        ValueError: the text is no JSON, a key comes twice, an integer has more than 64 bits, or lists and objects are
            nested too deeply.
    """
    try:
        return json.loads(
            text,
            object_pairs_hook=_object,
            parse_int=_integer,
            parse_constant=_no_number if finite else None,
        )
    except json.JSONDecodeError as error:
        rest = error.doc[error.pos :]
        got = f"got {rest.split()[0][:40]!r}" if rest.strip() else "it ends"
        raise ValueError(f"{got} at line {error.lineno}, column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise ValueError("lists and objects are too deep in each other") from None


def read(path: Path, what: str, mark: str, value: str, error: type[ValueError]) -> dict[str, Any]:
    """Reads the JSON object in a file, which names its own format.

    Args:
        path: the file.
        what: description of its content, for messages.
        mark: key of the format.
        value: the format that it must name.
        error: class of the errors.

    Raises:
        ValueError: raised as `error`: no such file, no JSON, or another format.
    """
    try:
        data = loads(path.read_text(encoding="utf-8"))
    except OSError as cause:
        raise error(f"{path}: {what} must be a readable file, but: {cause.strerror}") from None
    except ValueError as cause:
        raise error(f"{path}: {what} must be JSON, but {cause}") from None
    found = data.get(mark) if isinstance(data, dict) else None
    if found != value:
        raise error(f"{path}: `{mark}` must be {value!r}, but got {mark}={found!r}")
    return dict(data)


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"a key must come once, but got {twice[:60]!r} again")
    return members


def _integer(text: str) -> int:
    if len(text) > 20 or int(text) not in INTEGERS:
        digits = len(text.lstrip("-"))
        raise ValueError(f"an integer must fit 64 bits, but got one of {digits} digits")
    return int(text)


def _no_number(text: str) -> Any:
    raise ValueError(f"a number must be finite, but got {text}")
