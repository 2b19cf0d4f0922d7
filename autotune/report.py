"""Results on the terminal: a table of the tasks, their sum beside the reference, where time went."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from autotune.result import TuneResult, peak_flops
from costmodel.transfer import told

_TITLES = ("times", "algorithm", "trials", "failed", "ms", "GFLOP/s", "of peak", "ORT ms", "ratio")


def print_results(
    console: Console,
    results: Sequence[TuneResult],
    references: Sequence[float | None],
    wall: float,
    network: Mapping[str, Any] | None = None,
) -> None:
    """Prints the table and what belongs below it.

    Args:
        console: where to.
        results: of each task.
        references: seconds of each task elsewhere.
        wall: the run's duration in seconds.
        network: the `network` part of the summary, where the tasks are those of a network.
    """
    console.print(result_table(results, references) if network is None else network_table(results))
    if network is not None:
        console.print(network_sentence(network), highlight=False, soft_wrap=True)
    phases: Counter[str] = Counter()
    for result in results:
        phases.update(dict(result.phases))
        if result.best is not None and result.best.metrics:
            console.print(f"{result.name}: {metrics_sentence(result.best.metrics)}", highlight=False, soft_wrap=True)
        if result.problem:
            console.print(f"{result.name}: {result.problem}", style="red", markup=False, highlight=False)
    if (sentence := transfer_sentence(results)) is not None:
        console.print(sentence, markup=False, highlight=False, soft_wrap=True)
    spent = sum(phases.values())
    if spent:
        shares = ", ".join(f"{name} {seconds / spent:.1%}" for name, seconds in phases.items())
        measured = sum(result.measured for result in results)
        console.print(
            f"{measured} trials in {spent:.1f} s ({measured / spent:.1f} a second; {shares}), {wall:.1f} s in all",
            highlight=False,
        )


def transfer_sentence(results: Sequence[TuneResult]) -> str | None:
    """What other tasks' programs did for the searches; None where they were not used."""
    reports = [result.transfer for result in results if result.transfer is not None]
    if not reports:
        return None
    if len(reports) == 1:
        return told(reports[0])
    kept = sum(report["kept"] for report in reports)
    return (
        f"transfer from {reports[0]['source']} ({reports[0]['method']}): kept for {kept} tasks, "
        f"dropped for {len(reports) - kept}"
    )


def metrics_sentence(metrics: Mapping[str, float]) -> str:
    """What a target said of the best kernel besides its time: counts, and shares as percentages."""
    shown = (
        f"{name.replace('_', ' ')} {value:,}" if float(value).is_integer() else f"{name.replace('_', ' ')} {value:.1%}"
        for name, value in metrics.items()
    )
    return ", ".join(shown)


def result_table(results: Sequence[TuneResult], references: Sequence[float | None]) -> Table:
    """A row a task, and one for their weighted sum."""
    table = Table(box=None, header_style="bold")
    table.add_column("task", no_wrap=True)
    for title in _TITLES:
        table.add_column(title, justify="right", no_wrap=True)
    for result, seconds in zip(results, references, strict=True):
        table.add_row(
            result.name,
            str(result.weight),
            result.algorithm or "-",
            str(len(result.records)),
            str(sum(result.errors.values())),
            *_figures(result.best_seconds, result.gflops, result.peak_share),
            *_against(seconds, result.best_seconds),
        )
    if len(results) > 1:
        table.add_section()
        table.add_row(*_total(results, references), style="bold")
    return table


def network_table(results: Sequence[TuneResult]) -> Table:
    """Where the milliseconds go: a row a task, the most expensive first, and one for all."""
    table = Table(box=None, header_style="bold")
    table.add_column("task", no_wrap=True)
    for title in ("times", "algorithm", "trials", "failed", "ms", "ms in all", "share", "of peak"):
        table.add_column(title, justify="right", no_wrap=True)
    whole = sum(_spent(result) for result in results)
    for result in sorted(results, key=_spent, reverse=True):
        missing = math.isnan(result.best_seconds)
        table.add_row(
            result.name,
            str(result.weight),
            result.algorithm or "-",
            str(len(result.records)),
            str(sum(result.errors.values())),
            "-" if missing else f"{result.best_seconds * 1e3:.4f}",
            "-" if missing else f"{_spent(result) * 1e3:.3f}",
            f"{_spent(result) / whole:.1%}" if whole else "-",
            "-" if missing else f"{result.peak_share:.0%}",
        )
    flops = sum(r.weight * r.workload.flops for r in results if not math.isnan(r.best_seconds))
    peak = peak_flops(results[0].hardware, results[0].threads)
    table.add_section()
    table.add_row(
        "sum",
        str(sum(result.weight for result in results)),
        "",
        str(sum(len(result.records) for result in results)),
        str(sum(sum(result.errors.values()) for result in results)),
        "",
        f"{whole * 1e3:.3f}",
        "100.0%",
        f"{flops / whole / peak:.0%}" if whole else "-",
        style="bold",
    )
    return table


def network_sentence(network: Mapping[str, Any]) -> str:
    """What the executable does, beside the reference."""
    parts = []
    if network["seconds"] is not None:
        parts.append(f"{network['name']}: {network['seconds'] * 1e3:.2f} ms as one executable")
    if network["reference_seconds"] is not None:
        ratio = network["reference_seconds"] / network["seconds"]
        parts.append(f"{network['reference']} {network['reference_seconds'] * 1e3:.2f} ms ({ratio:.2f}x)")
    if network["tasks_seconds"] is not None:
        parts.append(f"sum of the tasks {network['tasks_seconds'] * 1e3:.2f} ms")
    if network["max_error"] is not None:
        parts.append(f"largest relative error {network['max_error']:.1e}")
    return ", ".join(parts)


def _spent(result: TuneResult) -> float:
    """Seconds of all occurrences of a task; 0 where none worked."""
    return 0.0 if math.isnan(result.best_seconds) else result.weight * result.best_seconds


def _total(results: Sequence[TuneResult], references: Sequence[float | None]) -> list[str]:
    """Weighted sum over the tasks; of the reference only where it has all of them."""
    ours = sum(result.weight * result.best_seconds for result in results)
    flops = sum(result.weight * result.workload.flops for result in results)
    shares = sum(result.weight * result.best_seconds * result.peak_share for result in results)
    theirs = sum(
        result.weight * (math.nan if seconds is None else seconds)
        for result, seconds in zip(results, references, strict=True)
    )
    return [
        "weighted sum",
        str(sum(result.weight for result in results)),
        "",
        str(sum(len(result.records) for result in results)),
        str(sum(sum(result.errors.values()) for result in results)),
        *_figures(ours, flops / ours * 1e-9, shares / ours),
        *_against(None if math.isnan(theirs) else theirs, ours),
    ]


def _figures(seconds: float, gflops: float, share: float) -> tuple[str, str, str]:
    if math.isnan(seconds):
        return ("-", "-", "-")
    return (f"{seconds * 1e3:.4f}", f"{gflops:.1f}", f"{share:.0%}")


def _against(reference: float | None, ours: float) -> tuple[str, str]:
    if reference is None:
        return ("-", "-")
    return (f"{reference * 1e3:.4f}", "-" if math.isnan(ours) else f"{reference / ours:.2f}x")
