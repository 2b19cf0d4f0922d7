"""Figures of searches with transfer from other tasks: rows of single tasks, and means over all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from benchmarks.interleave import geometric_mean

HARD_ROUNDS = 2
"""Rounds of a hard task: the median search without transfer needs more than so many.

Searches of other seeds decide this, so that the compared searches do not select their own tasks.
"""
RESAMPLES = 4000
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Row:
    """One task, searched by one method with several seeds.

    Attributes:
        task, target: names.
        method: method of transfer.
        plain, transferred: trials of each seed's search until the final result of the search without transfer; one more
            than all trials if it never gets there.
        slower: best seconds of the median search in the end, over those of the median search without transfer.
        dropped: trials after which each seed's source was dropped; None where it was kept.
        correlation: rank correlation of the programs measured both on the target and on another one; None where
            there are few.
        setting: origin of the source, and of the searched task.
        batch, trials: trials of a round, and of a search.
        programs: number of programs that the searches choose among.
        apart: trials as `plain`, of searches without transfer by other seeds.
    """

    task: str
    target: str
    method: str
    plain: tuple[float, ...]
    transferred: tuple[float, ...]
    slower: float
    dropped: tuple[int | None, ...]
    correlation: float | None = None
    setting: str = "workloads"
    batch: int = 8
    trials: int = 64
    programs: int = 0
    apart: tuple[float, ...] = ()

    @property
    def key(self) -> str:
        """Key of its row in a result file."""
        return f"{self.setting}, {self.target} {self.task} {self.method}"

    @property
    def cut(self) -> float:
        """Ratio of trials without transfer to trials with it: the geometric mean over seeds."""
        return geometric_mean(
            [plain / transferred for plain, transferred in zip(self.plain, self.transferred, strict=True)]
        )

    @property
    def hard(self) -> bool:
        """Tells whether searches without transfer need more than `HARD_ROUNDS` rounds, see there."""
        return float(np.median(self.apart)) > HARD_ROUNDS * self.batch

    def to_json(self) -> dict[str, Any]:
        """Converts it to plain data."""
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Row:
        """Makes a row from data of `to_json`; other keys are ignored."""
        known = {field.name: data[field.name] for field in fields(Row)}
        return Row(**{name: tuple(value) if isinstance(value, list) else value for name, value in known.items()})


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Summarises all tasks of one method; `censored` is the share of searches that never got there.

    `cut` and `hard_cut` are geometric means over tasks, and the intervals those of a bootstrap over tasks.
    """
    hard = [row for row in rows if row.hard]
    correlations = [row.correlation for row in rows if row.correlation is not None]
    worst = max(rows, key=lambda row: row.slower)
    return {
        "tasks": len(rows),
        "seeds": min(len(row.plain) for row in rows),
        "cut": geometric_mean([row.cut for row in rows]),
        "cut_interval": interval([row.cut for row in rows]),
        "hard_tasks": len(hard),
        "hard_cut": geometric_mean([row.cut for row in hard]) if hard else None,
        "hard_cut_interval": interval([row.cut for row in hard]) if hard else None,
        "worst": worst.slower,
        "worst_task": worst.task,
        "slower_by_5": sum(row.slower > 1.05 for row in rows),
        "dropped": float(np.mean([at is not None for row in rows for at in row.dropped])),
        "censored": float(np.mean([transferred > row.trials for row in rows for transferred in row.transferred])),
        "correlation": float(np.mean(correlations)) if correlations else None,
    }


def interval(values: Sequence[float], seed: int = 0) -> tuple[float, float]:
    """Computes the interval of the geometric mean with `CONFIDENCE`: a percentile bootstrap (Efron, 1979)."""
    logs = np.log(np.asarray(values, np.float64))
    drawn = np.random.default_rng(seed).integers(0, len(logs), (RESAMPLES, len(logs)))
    low, high = np.exp(np.quantile(logs[drawn].mean(axis=1), [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]))
    return float(low), float(high)


def table(rows: Sequence[Row]) -> str:
    """Formats Markdown: a line for each setting and method, with separate figures of the hard tasks."""
    lines = [
        "| from other | searched on | method | tasks x seeds | trials cut | hard tasks | trials cut there | slower in "
        "the end, at most | over 5 % | dropped | rank correlation of targets |",
        "|---|---|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    kinds = list(dict.fromkeys((row.setting, row.target, row.method) for row in rows))
    for setting, target, method in kinds:
        of = [row for row in rows if (row.setting, row.target, row.method) == (setting, target, method)]
        lines.append(_line(setting, target, method, of))
    if len(kinds) > 1:
        methods = dict.fromkeys(row.method for row in rows)
        lines += [
            _line("all of these", "", method, [row for row in rows if row.method == method]) for method in methods
        ]
    return "\n".join(lines)


def _line(setting: str, target: str, method: str, rows: Sequence[Row]) -> str:
    figures = summary(rows)
    alike = "" if figures["correlation"] is None else f"{figures['correlation']:.2f}"
    return (
        f"| {setting} | {target} | {method} | {figures['tasks']} x {figures['seeds']} | "
        f"{_within(figures['cut'], figures['cut_interval'])} | {figures['hard_tasks']} | "
        f"{_within(figures['hard_cut'], figures['hard_cut_interval'])} | {figures['worst'] - 1:+.1%} | "
        f"{figures['slower_by_5']} | {figures['dropped']:.0%} | {alike} |"
    )


def _within(value: float | None, bounds: tuple[float, float] | None) -> str:
    return "" if value is None or bounds is None else f"{value:.2f}x ({bounds[0]:.2f}–{bounds[1]:.2f})"
