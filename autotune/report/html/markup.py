"""Pieces of HTML: whatever is no `Markup` yet is escaped when it goes in."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape


class Markup(str):
    """Text that is HTML already."""


def html(value: object) -> str:
    """HTML of a value: itself if it is `Markup`, else its text, escaped."""
    return value if isinstance(value, Markup) else escape(str(value))


def element(name: str, *inside: object, **attributes: str) -> Markup:
    """An element; in names of attributes a trailing `_` is left off, others are hyphens."""
    named = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items()}
    given = "".join(f' {key}="{escape(value)}"' for key, value in named.items())
    return Markup(f"<{name}{given}>{''.join(map(html, inside))}</{name}>")


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    numbers: Iterable[int] = (),
    foot: bool = False,
    groups: Sequence[tuple[object, int]] = (),
) -> Markup:
    """A table that scrolls by itself where the screen is narrow.

    Args:
        columns: titles.
        rows: cells; the first of each names its row.
        numbers: places of columns whose cells are aligned to the right.
        foot: whether the last row sums the others up.
        groups: (title, columns) of groups of columns, which stand above them.
    """
    right = set(numbers)
    styles = [{"class_": "n"} if place in right else {} for place in range(len(columns))]
    titles = (element("th", title, scope="col", **style) for title, style in zip(columns, styles, strict=True))
    above = (element("th", title, scope="colgroup", colspan=str(count)) for title, count in groups)
    head = [*([element("tr", *above)] if groups else []), element("tr", *titles)]
    lines = [
        element(
            "tr",
            *(
                element("th", cell, scope="row") if place == 0 else element("td", cell, **style)
                for place, (cell, style) in enumerate(zip(row, styles, strict=True))
            ),
        )
        for row in rows
    ]
    body, last = (lines[:-1], lines[-1:]) if foot else (lines, [])
    parts = [element("thead", *head), element("tbody", *body), *([element("tfoot", *last)] if last else [])]
    return element("div", element("table", *parts), class_="scroll")


def figure(value: float, digits: int = 1) -> str:
    """A number; "–" for NaN."""
    return "–" if math.isnan(value) else f"{value:,.{digits}f}"


def percent(value: float) -> str:
    """A share in whole per cent; "–" for NaN."""
    return "–" if math.isnan(value) else f"{value:.0%}"


def times(value: float) -> str:
    """A ratio; "–" for NaN."""
    return "–" if math.isnan(value) else f"{value:.2f}×"


def duration(seconds: float) -> str:
    """Seconds as a reader says them."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"
