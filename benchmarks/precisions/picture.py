"""Latency against accuracy, a panel for each network."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.precisions.table import ORDER, is_ours, title

Row = Mapping[str, Any]

EXACT = 100.0
"""Decibels from which nothing was rounded to 16 bits; such points are at the right edge."""

MARKS = ("s", "D", "^", "v", "<", "X", "P")
"""Marks of peers."""


def draw(rows: Mapping[str, Row], path: Path, columns: int = 4) -> Path | None:
    """Draws the rows that were timed; returns None without any.

    Our executables of several budgets are drawn apart, hollow after no trial; peers are those of the largest budget.

    Args:
        rows: rows of the result file.
        path: path of the PNG.
        columns: panels side by side.
    """
    timed = [row for row in rows.values() if row["seconds"]]
    if not timed:
        return None
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels = {name: sorted((r for r in timed if r["name"] == name), key=_trials) for name in _names(timed)}
    wide = min(columns, len(panels))
    high = math.ceil(len(panels) / wide)
    figure = Figure(figsize=(3.0 * wide + 0.6, 2.4 * high + 1.1), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(high, wide, squeeze=False)
    handles: dict[str, Any] = {}
    for panel, (name, found) in zip(axes.flat, panels.items(), strict=False):
        for row in found:
            handles |= _points(panel, row, peers=row is found[-1])
        low = 10 * (min((d for row in found for d in row["decibels"].values()), default=0.0) // 10)
        ticks = list(range(int(low), int(EXACT), 20))
        panel.set(ylim=(0, None), xlim=(low - 3, EXACT + 6), title=name, xticks=[*ticks, EXACT])
        panel.set_xticklabels([*map(str, ticks), "float32"])
        panel.title.set_fontsize(9)
        panel.tick_params(labelsize=7)
        panel.grid(alpha=0.25, linewidth=0.5)
    for panel in axes.flat[len(panels) :]:
        panel.set_axis_off()
    figure.supxlabel("signal to noise of the worst output, dB", fontsize=9)
    figure.supylabel("ms", fontsize=9)
    shown = dict(sorted(handles.items(), key=lambda item: not item[0].startswith("autotune")))
    figure.legend(list(shown.values()), list(shown), loc="outside upper center", ncols=3, fontsize=8, frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=90)
    return path


def _trials(row: Row) -> int:
    return int(row["trials"])


def _names(rows: Sequence[Row]) -> list[str]:
    return sorted({row["name"] for row in rows})


def _points(panel: Any, row: Row, peers: bool) -> dict[str, Any]:
    """Draws a row, and gives a handle for each name."""
    handles = {}
    ours = [label for label in row["seconds"] if is_ours(label)]
    tuned = row["trials"] > 0
    places = sorted(_coordinates(row, label) for label in ours)
    panel.plot(*zip(*places, strict=True), color="C0", linewidth=0.9, alpha=0.6)
    for number, label in enumerate(ours):
        name = f"{title(label, row)}, {row['trials']} trials" if tuned else title(label, row)
        fill = f"C{number}" if tuned else "none"
        (handles[name],) = panel.plot(
            *_coordinates(row, label), "o", color=f"C{number}", markerfacecolor=fill, markersize=6, linestyle="none"
        )
    for label in [peer for peer in ORDER if peers and peer in row["seconds"]]:
        mark, colour = MARKS[ORDER.index(label)], f"C{3 + ORDER.index(label)}"
        (handles[title(label, row)],) = panel.plot(
            *_coordinates(row, label), mark, color=colour, markersize=5, alpha=0.85, linestyle="none"
        )
    return handles


def _coordinates(row: Row, label: str) -> tuple[float, float]:
    return min(row["decibels"].get(label, EXACT), EXACT), row["seconds"][label] * 1e3
