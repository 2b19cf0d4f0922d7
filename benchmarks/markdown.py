"""Tables as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(header: Sequence[str], lines: Iterable[Sequence[object]]) -> str:
    """A table whose first column stands on the left, all others on the right."""
    rule = ["---", *("---:" for _ in header[1:])]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in (header, rule, *lines))
