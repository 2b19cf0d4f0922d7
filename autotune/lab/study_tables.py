"""A study of cost models as tables for the terminal and as pictures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from rich.table import Table

from autotune.lab.evaluate.scores import METRICS, Estimate
from autotune.lab.protocol.pools import Pools
from autotune.lab.protocol.study import Study, predict_scores
from autotune.naming import file_name

HEADS = {
    "top1": "top-1",
    "top5": "top-5",
    "normalised1": "norm. top-1",
    "normalised5": "norm. top-5",
    "pairwise": "pairwise",
    "tau": "Kendall's τ",
    "recall": "recall@30",
    "best1": "Best@1",
    "best5": "Best@5",
}
"""Metric → its name in the literature."""
assert tuple(HEADS) == METRICS
_SIGNIFICANT = 0.05  # p of the paired bootstrap below which a difference is marked
_PANELS = 12  # three rows of four


def new_table(left: Sequence[str], right: Sequence[str]) -> Table:
    """Makes a table without rows: heads of the columns aligned left, then heads of the columns aligned right."""
    table = Table(box=None, header_style="bold")
    for head in left:
        table.add_column(head)
    for head in right:
        table.add_column(head, justify="right")
    return table


def figures_table(heads: Sequence[str], left: int, rows: Iterable[tuple[Sequence[str], Iterable[Estimate]]]) -> Table:
    """Makes a table of estimates: the first `left` of some columns of text are aligned left, all others right."""
    table = new_table(heads[:left], [*heads[left:], *HEADS.values()])
    for texts, figures in rows:
        table.add_row(*texts, *map(str, figures))
    return table


def scores_table(of: Study) -> Table:
    """Builds a row for each model: figures and half-widths of their intervals; * where the first model is better."""
    table = new_table(["model"], [*HEADS.values(), "programs/s", "fit s"])
    for name, one in of.models.items():
        behind = of.behind_first.get(name, {})
        worse = {metric for metric, found in behind.items() if found.value > 0 and found.p < _SIGNIFICANT}
        cells = [f"{figure}{'*' if metric in worse else ' '}" for metric, figure in of.figures[name].items()]
        rate = "" if math.isnan(one.programs_per_second) else f"{one.programs_per_second:,.0f}"
        table.add_row(name, *cells, rate, f"{one.fit_seconds:.1f}" if one.model is not None else "")
    return table


def tasks_table(of: Study, models: Sequence[str]) -> Table:
    """Builds a row for each task: its occurrences and programs, and some models' pairwise accuracy and Best@1."""
    heads = [head for name in models for head in (f"{name}\npairwise", "\nBest@1")]
    table = new_table(["task", "networks"], ["programs", *heads])
    for row, part in enumerate(of.held_out.parts):
        networks = ", ".join(f"{n} {w[row]:.0f}x" for n, w in of.held_out.tasks.weights.items() if w[row])
        cells = []
        for name in models:
            scores = of.models[name].rankings.metrics
            cells += [f"{scores[metric][:, row].mean():.3f}" for metric in ("pairwise", "best1")]
        table.add_row(part.task.name, networks, f"{len(of.held_out.seconds[row]):,}", *cells)
    return table


def pictures(of: Study, pools: Pools, model: str, folder: Path) -> list[Path]:
    """Draws predicted against measured, a panel for each of the tasks that take most time, and the models' scores.

    Raises:
        MissingExtra: Matplotlib is not installed.
    """
    from search_space.extras import require

    require("drawing pictures", "matplotlib")
    from matplotlib.figure import Figure

    folder.mkdir(parents=True, exist_ok=True)
    time = sum(w * of.held_out.tasks.best for w in of.held_out.tasks.weights.values())
    longest = np.argsort(-np.asarray(time))[:_PANELS].tolist()
    figure = Figure(figsize=(10, 7), layout="constrained")
    panels = np.atleast_1d(figure.subplots(3, 4)).ravel()
    learned = of.models[model].model
    for axes, task in zip(panels, longest, strict=False):
        part = of.held_out.parts[task]
        assert learned is not None
        scores = predict_scores(learned, pools, of.held_out.role, part.task)
        seconds = of.held_out.seconds[task]
        axes.scatter(scores, seconds.min() / seconds, s=4, alpha=0.4)
        axes.set_title(part.task.name[:32], fontsize="x-small")
        axes.tick_params(labelsize="xx-small")
    figure.supxlabel(f"score of {model}")
    figure.supylabel("throughput / that of the fastest")
    first = folder / f"{file_name(model)}_{of.held_out.role}.png"
    figure.savefig(first, dpi=100)
    figure = Figure(figsize=(9, 3.5), layout="constrained")
    for axes, metric in zip(figure.subplots(1, 3, sharey=True), ("normalised1", "top1", "pairwise"), strict=True):
        for row, name in enumerate(list(of.models)[::-1]):
            value, low, high = of.figures[name][metric]
            axes.errorbar(value, row, xerr=[[value - low], [high - value]], fmt="o", color="C0", markersize=4)
        axes.set_title(HEADS[metric], fontsize="small")
        axes.set_yticks(range(len(of.models)), list(of.models)[::-1], fontsize="x-small")
        axes.grid(axis="x", linewidth=0.3)
    second = folder / f"models_{of.held_out.role}.png"
    figure.savefig(second, dpi=100)
    return [first, second]
