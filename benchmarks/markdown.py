"""Tables as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(header: Sequence[str], lines: Iterable[Sequence[object]], left: int = 1) -> str:
    """Returns a table whose first `left` columns are aligned on the left, all others on the right."""
    rule = ["---" if place < left else "---:" for place in range(len(header))]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in (header, rule, *lines))
