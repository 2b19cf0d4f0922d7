"""Curves of search: share of the best known against trials, a panel for each task."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

LEAST = 0.5
"""Lowest share of the best known that is drawn."""


def draw(rows: Mapping[str, Any], path: Path, columns: int = 4) -> Path:
    """Draws means over seeds with their confidence bands.

    Args:
        rows: rows of the result file, by task.
        path: path of the PNG.
        columns: panels side by side.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(name for row in rows.values() for name in row["methods"]))
    wide = min(columns, len(rows))
    high = math.ceil(len(rows) / wide)
    figure = Figure(figsize=(3.6 * wide + 0.4, 2.7 * high + 0.9), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(high, wide, squeeze=False, sharey=True)
    handles: dict[str, Any] = {}
    for panel, row in zip(panels.flat, rows.values(), strict=False):
        for number, name in enumerate(names):
            if name not in row["methods"]:
                continue
            found = row["methods"][name]["curve"]
            (line,) = panel.plot(found["trials"], found["mean"], color=f"C{number}", linewidth=1.4, label=name)
            panel.fill_between(found["trials"], found["low"], found["high"], color=f"C{number}", alpha=0.2, linewidth=0)
            handles.setdefault(name, line)
        panel.axhline(0.98, color="0.6", linewidth=0.8, linestyle=":")
        panel.set(xscale="log", ylim=(LEAST, 1.01), title=row["title"])
        panel.title.set_fontsize(9)
        panel.tick_params(labelsize=8)
        panel.grid(alpha=0.25, linewidth=0.5)
    for panel in panels.flat[len(rows) :]:
        panel.set_axis_off()
    figure.supxlabel("trials", fontsize=9)
    figure.supylabel("best found / best known", fontsize=9)
    figure.legend(list(handles.values()), list(handles), loc="outside upper center", ncols=4, fontsize=9, frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    return path
