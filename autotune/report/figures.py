"""Figures of tasks and networks that reports show, made of results or of the entries of `summary.json`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from autotune.tuner.result import TuneResult
from search_space.workloads import Workload


@dataclass
class Figures:
    """Figures of a task, or of all tasks of a run together; NaN where one is not known.

    Attributes:
        name: shown; user text.
        weight: number of times that the task occurs.
        flops: operations of one execution.
        seconds: latency of the best candidate, see `autotune.tuner.finals`.
        spread: spread of its timings, as a share.
        peak_share: rate as a share of the machine's peak, in [0, 1].
        algorithm: algorithm of the best candidate; "" if none worked.
        effective: whether the algorithm computes fewer operations than `flops`.
        reference: runtime that was timed beside it; "" where none was.
        reference_seconds: latency on that runtime.
        metrics: counts and shares of the best candidate, as its target names them.
        trials: number of measured trials.
        failures: trials that did not work.
    """

    name: str
    weight: int = 1
    flops: float = math.nan
    seconds: float = math.nan
    spread: float = math.nan
    peak_share: float = math.nan
    algorithm: str = ""
    effective: bool = False
    reference: str = ""
    reference_seconds: float = math.nan
    metrics: Mapping[str, float] = field(default_factory=dict)
    trials: int = 0
    failures: int = 0

    @property
    def total(self) -> float:
        """Seconds of the best candidate as often as the task occurs."""
        return self.weight * self.seconds

    @property
    def gflops(self) -> float:
        """1e9 operations a second."""
        return self.flops / self.seconds * 1e-9

    @property
    def ratio(self) -> float:
        """Speed-up over the reference."""
        return self.reference_seconds / self.seconds


def make_figures(result: TuneResult, reference: float | None) -> Figures:
    """Takes the figures of a result and of the seconds that a reference takes; None: it was not timed."""
    return Figures(
        result.name,
        result.weight,
        float(result.workload.flops),
        result.best_seconds,
        result.spread,
        result.peak_share,
        result.algorithm or "",
        result.effective,
        reference_seconds=nan_or(reference),
        trials=len(result.records),
        failures=sum(result.errors.values()),
    )


def figures_in(entry: Mapping[str, Any], workload: Workload) -> dict[str, Any]:
    """Reads the arguments of `Figures` from a task's entry in a summary, but for counts of trials."""
    return {
        "name": entry["name"],
        "weight": entry["weight"],
        "flops": float(workload.flops),
        "seconds": nan_or(entry["best_seconds"]),
        "spread": nan_or(entry.get("spread")),
        "peak_share": nan_or(entry["peak_share"]),
        "algorithm": entry["algorithm"] or "",
        "reference": entry["reference"] or "",
        "reference_seconds": nan_or(entry["reference_seconds"]),
        "metrics": entry.get("metrics") or {},
    }


def add_up(tasks: Sequence[Figures], name: str = "sum") -> Figures:
    """Adds up tasks, each as often as it occurs; the share of peak is their mean, weighted by time."""
    seconds = sum(task.total for task in tasks) if tasks else math.nan
    return Figures(
        name,
        sum(task.weight for task in tasks),
        sum(task.weight * task.flops for task in tasks),
        seconds,
        peak_share=sum(task.total * task.peak_share for task in tasks) / seconds,
        effective=any(task.effective for task in tasks),
        reference_seconds=sum(task.weight * task.reference_seconds for task in tasks) if tasks else math.nan,
        trials=sum(task.trials for task in tasks),
        failures=sum(task.failures for task in tasks),
    )


def worst_decibels(network: Mapping[str, Any]) -> float | None:
    """Finds the lowest signal-to-noise ratio of an output in the `network` part of a summary; None: all are exact."""
    found = [cost["decibels"] for cost in (network.get("rounding") or {}).values()]
    return min((value for value in found if value is not None), default=None)


def nan_or(value: float | None) -> float:
    """Replaces None by NaN."""
    return math.nan if value is None else float(value)
