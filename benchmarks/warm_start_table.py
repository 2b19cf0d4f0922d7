"""The table of `benchmarks.warm_start`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.markdown import table

SEARCHES: Sequence[tuple[str, int]] = (
    ("pretrained, database", 100),
    ("pretrained, database", 600),
    ("roofline", 600),
    ("roofline", 1000),
)
"""Knowledge of searches, and their trials."""


def column_title(source: str, trials: int) -> str:
    """Formats the title of a column."""
    return f"{source}, {trials:,} trials" if trials else source


def warm_start(document: Mapping[str, Any]) -> str:
    """Formats a row for each way, a column for each network: milliseconds, and mean ratios to the last search."""
    rows = document["rows"]
    titles = list(dict.fromkeys(title for row in rows.values() for title in row["milliseconds"]))
    lines: list[list[object]] = []
    for title in titles:
        of = [row["milliseconds"][title] for row in rows.values()]
        beside = [row["milliseconds"][column_title(*SEARCHES[-1])] for row in rows.values()]
        mean = float(np.exp(np.mean(np.log(np.array(of) / np.array(beside)))))
        lines.append([title, *(f"{ms:.2f}" for ms in of), f"{mean:.3f}"])
    header = ["what is known", *(f"{name} ms" for name in rows), f"of {column_title(*SEARCHES[-1])}"]
    return table(header, lines)
