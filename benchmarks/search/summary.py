"""Results of the searches of one task, as a row of the result file, and of all rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.search.play import BLIND, UNIFORM, PlayedSearch
from benchmarks.search.replay import ReplayTable
from benchmarks.search.restrict import digest
from benchmarks.search.statistics import CAP, bootstrap_mean, count_trials, curve, group_by_kind, speedup, trials_to

SHARES = (0.95, 0.98)
POINTS = tuple(int(p) for p in np.unique(np.geomspace(1, CAP, 49).round()))
"""Trials at which curves are drawn."""
Row = dict[str, Any]


def make_row(table: ReplayTable, runs_by_method: Mapping[str, Sequence[PlayedSearch]], trials: int) -> Row:
    """Summarises a task's searches as its row.

    Args:
        table: table of the task.
        runs_by_method: searches by the method's name, one a seed.
        trials: most trials of a search with a model.
    """
    size = len(table.seconds)
    points = [p for p in POINTS if p < size] + [size] if size <= CAP else list(POINTS)
    methods: dict[str, Any] = {}
    for name, runs in runs_by_method.items():
        to = {_key(share): [trials_to(run.seconds, table.best, share) for run in runs] for share in SHARES}
        ended = all(np.nanmin(run.seconds, initial=np.inf) <= table.best for run in runs)  # there is nothing to come
        most = size if ended else max(len(run.seconds) for run in runs)
        at = [p for p in points if p <= most] or [1]
        lines = np.stack([curve(run.seconds, table.best, at) for run in runs])  # (seeds, points)
        rng = np.random.default_rng(0)
        band = [bootstrap_mean(lines[:, place], rng, 1000) for place in range(len(at))]
        ranked = np.concatenate([run.rank_accuracy for run in runs])
        methods[name] = {
            "budget": CAP if name in BLIND else trials,
            "trials": to,
            "curve": {
                "trials": at,
                "mean": [round(b.value, 4) for b in band],
                "low": [round(b.low, 4) for b in band],
                "high": [round(b.high, 4) for b in band],
            },
            "rank_accuracy": round(float(np.nanmean(ranked)), 3) if np.isfinite(ranked).any() else None,
            "seconds_a_search": round(float(np.mean([run.wall for run in runs])), 2),
        }
    return {
        "title": table.title,
        "class": table.kind,
        "workload": table.workload.key,
        "target": table.target,
        "digest": digest(table.space),
        "candidates": size,
        "failed": int(np.isnan(table.seconds).sum()),
        "best_seconds": table.best,
        "good": {_key(share): table.good(share) for share in SHARES},
        "random_trials": {_key(share): table.random_trials(share) for share in SHARES},
        "methods": methods,
    }


def speedups(rows: Mapping[str, Row]) -> dict[str, dict[str, dict[str, Any]]]:
    """Computes, by kind, share and method, how many times fewer trials are needed than by uniform random search.

    The trials of random search are known exactly, see `ReplayTable.random_trials`. Searches that were cut off count as
    the size of the complete table, so the ratio is a lower bound.
    """
    out: dict[str, dict[str, dict[str, Any]]] = {}
    for kind, names in group_by_kind(rows).items():
        for share in SHARES:
            key = _key(share)
            for method in dict.fromkeys(m for name in names for m in rows[name]["methods"]):
                of = [name for name in names if method in rows[name]["methods"]]
                if method == UNIFORM:
                    continue
                trials = {name: rows[name]["methods"][method]["trials"][key] for name in of}
                pairs = {
                    name: (np.array([rows[name]["random_trials"][key]]), count_trials(counts, rows[name]["candidates"]))
                    for name, counts in trials.items()
                }
                estimate = speedup(pairs, np.random.default_rng(0))
                cut = sum(counts.count(None) for counts in trials.values())
                known = {"ratio": estimate.to_json(), "tasks": len(pairs), "cut_off": cut}
                out.setdefault(kind, {}).setdefault(key, {})[method] = known
    return out


def sentence(row: Row) -> str:
    """Formats a row briefly."""
    key = _key(SHARES[-1])
    parts = []
    for name, found in row["methods"].items():
        trials = found["trials"][key]
        cut = trials.count(None)
        mean = count_trials(trials, found["budget"]).mean()
        parts.append(f"{name} {'>' if cut else ''}{mean:.0f}{f' ({cut} cut off)' if cut else ''}")
    return f"trials to {key} of the best of {row['candidates']:,}, {row['good'][key]} of which reach it: " + ", ".join(
        parts
    )


def facts(table: ReplayTable) -> str:
    """Formats a table briefly."""
    shares = ", ".join(
        f"{table.good(share)} reach {_key(share)} (random search: {table.random_trials(share):.0f} trials)"
        for share in SHARES
    )
    failed = int(np.isnan(table.seconds).sum())
    return f"{table.name}: {len(table.seconds):,} candidates, {failed} failed, {shares}"


def _key(share: float) -> str:
    return f"{share * 100:.0f} %"
