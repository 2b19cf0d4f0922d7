"""The table of `benchmarks.hub`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.markdown import table

DEFAULT = "listing + matern"


def interval(scores: Sequence[float]) -> tuple[float, float]:
    """Computes the interval of 95 % of the mean over seeds, by bootstrap."""
    draws = np.random.default_rng(0).integers(0, len(scores), (2000, len(scores)))
    low, high = np.quantile(np.asarray(scores)[draws].mean(axis=1), (0.025, 0.975))
    return float(low), float(high)


def hub(document: Mapping[str, Any]) -> str:
    """Formats a row for each method, ordered by its mean over spaces; each column has a mean and half the interval."""
    rows: Mapping[str, Any] = document["rows"]
    methods = dict.fromkeys(name for row in rows.values() for name in row["scores"])
    lines = []
    for name in methods:
        scores = [row["scores"].get(name) for row in rows.values()]
        means = [float(np.mean(each)) for each in scores if each]
        cells = [_cell(each) if each else "" for each in scores]
        title = f"**{name}**" if name == DEFAULT else name
        # A method that did not play everything has no mean beside those that did.
        whole = float(np.mean(means)) if len(means) == len(scores) else float("-inf")
        lines.append((whole, [title, *cells, f"{whole:.3f}" if np.isfinite(whole) else ""]))
    lines.sort(key=lambda line: -line[0])
    seeds = ", ".join(dict.fromkeys(str(row["seeds"]) for row in rows.values()))
    titles = ["method", *(name.replace("_", " ") for name in rows), "mean"]
    return f"{seeds} seeds.\n\n{table(titles, [cells for _, cells in lines])}"


def _cell(scores: Sequence[float]) -> str:
    low, high = interval(scores)
    return f"{np.mean(scores):.3f} ± {(high - low) / 2:.3f}"
