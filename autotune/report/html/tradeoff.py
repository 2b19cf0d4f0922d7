"""Chart of latency against accuracy of a network in mixed precision, as inline SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from autotune.report.html.charts import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, frame, linear_ticks
from autotune.report.mixed import Row
from autotune.units import latency, select_unit

STEP = 10
"""Decibels between ticks."""

EXACT = 100.0
"""Decibels from which nothing was rounded to 16 bits: sums in float32 differ by their order alone."""

LETTERS = 13
"""Least distance of names, one above the other."""


def tradeoff_chart(title: str, rows: Sequence[Row]) -> str:
    """Points over decibels, exact ones at the right edge; estimates are joined by a line, what was timed has its name.

    Args:
        title: text for screen readers.
        rows: rows, at least one.
    """
    known = [_decibels(row) for row in rows if not _is_exact(row)]
    low = STEP * (min(known, default=0.0) // STEP)
    high = STEP * (max(known, default=0.0) // STEP + 2)
    scale, unit = select_unit(min(row.seconds for row in rows))
    top = 1.1 * scale * max(row.seconds for row in rows)

    def position(row: Row) -> tuple[float, float]:
        share = 1.0 if _is_exact(row) else (_decibels(row) - low) / (high - low)
        return across(share), up(row.seconds * scale)

    def across(share: float) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * share, 1)

    def up(value: float) -> float:
        return round(HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * value / top, 1)

    step = STEP * max(1, round((high - low) / STEP / 6))
    ticks = [low + step * number for number in range(int((high - low - STEP) // step) + 1)]
    columns = [(across((tick - low) / (high - low)), f"{tick:g}", "middle") for tick in ticks]
    rows_of_grid = [(up(value), f"{value:g}") for value in linear_ticks(top)]
    parts = frame(title, ("dB", unit), [*columns, (across(1.0), "exact", "end")], rows_of_grid)
    line = "L".join("{} {}".format(*position(row)) for row in rows if not row.timed and row.name != "chosen")
    if line:
        parts.append(f'<path class="line s0" d="M{line}"/>')
    for row in rows:
        x, y = position(row)
        kind = 2 if row.narrow is None else 1 if row.timed or row.name == "chosen" else 0
        accuracy = "exact" if row.decibels is None else f"{row.decibels:.1f} dB"
        label = f"{row.name}: {latency(row.seconds)} {'timed' if row.timed else 'estimated'}, {accuracy}"
        radius = 5 if row.timed else 3.5
        parts.append(
            f'<circle class="point s{kind}" cx="{x}" cy="{y}" r="{radius}"><title>{escape(label)}</title></circle>'
        )
    parts += _names([(row.name, *position(row)) for row in rows if row.timed])
    return "".join([*parts, "</svg>"])


def _is_exact(row: Row) -> bool:
    return row.decibels is None or row.decibels >= EXACT


def _decibels(row: Row) -> float:
    return 0.0 if row.decibels is None else row.decibels


def _names(points: Sequence[tuple[str, float, float]]) -> list[str]:
    """Places texts beside points, on the free side, and moves them down where they would overlap.

    Args:
        points: name, x and y of each.
    """
    parts = []
    last = {"start": -math.inf, "end": -math.inf}
    for name, x, y in sorted(points, key=lambda point: point[2]):
        side, beside = ("end", x - 9) if x > WIDTH / 2 else ("start", x + 9)
        last[side] = max(y + 4, last[side] + LETTERS)
        at = round(last[side], 1)
        parts.append(f'<text class="name" x="{beside}" y="{at}" text-anchor="{side}">{escape(name)}</text>')
    return parts
