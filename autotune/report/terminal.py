"""Results on the terminal: a table of the tasks, their sum beside the reference, where time went."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from autotune.report.mixed import mixture_table
from autotune.report.tables import Column, console_width, fitted
from autotune.tuning.result import TuneResult
from autotune.units import certainty, latency, share
from costmodel.transfer import summary
from measure.steadiness import DISAGREE, disagreement


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
    width = console_width(console)
    if results:
        console.print(result_table(results, references, width) if network is None else network_table(results, width))
    halves = {result.name: result.standing.halves for result in results if result.standing is not None}
    if (sentence := unsteady_sentence(halves)) is not None:
        console.print(sentence, style="yellow", markup=False, highlight=False, soft_wrap=True)
    if network is not None:
        console.print(network_sentence(network), highlight=False, soft_wrap=True)
        if network.get("mixture"):
            console.print(mixture_table(network, width))
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
        return summary(reports[0])
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


def unsteady_sentence(halves: Mapping[str, tuple[float, float]]) -> str | None:
    """Says that the machine was busy where two halves of a measurement disagree; None where all agree.

    Args:
        halves: task → median seconds of the first and of the second half of the best candidate's samples.
    """
    apart = {name: disagreement(two) for name, two in halves.items() if disagreement(two) > DISAGREE}
    if not apart:
        return None
    worst = max(apart, key=lambda name: apart[name])
    first, second = map(latency, halves[worst])
    whole = "" if len(halves) == 1 else f" ({len(apart)} of {len(halves)} tasks are like that)"
    return (
        f"{worst}: two halves of its timings disagree, {first} and {second}{whole}: the machine was busy, and "
        f"latencies are {certainty(apart[worst])}"
    )


def _measured(result: TuneResult) -> tuple[str, ...]:
    """The columns that both tables begin with."""
    return (
        result.name,
        str(result.weight),
        result.algorithm or "-",
        str(len(result.records)),
        str(sum(result.errors.values())),
        latency(result.best_seconds),
        share(result.spread),
    )


def result_table(results: Sequence[TuneResult], references: Sequence[float | None], width: int) -> Table:
    """A row a task, and one for their weighted sum; at most `width` characters wide."""
    rows: list[tuple[str, ...]] = [
        (
            *_measured(result),
            *_rates(result.gflops, result.peak_share, result.effective),
            *_against(seconds, result.best_seconds),
        )
        for result, seconds in zip(results, references, strict=True)
    ]
    if len(results) > 1:
        rows.append(_total(results, references))
    ranks = {
        "task": 0,
        "times": 9,
        "algorithm": 8,
        "trials": 6,
        "failed": 7,
        "latency": 0,
        "spread": 3,
        "GFLOP/s": 1,
        "of peak": 2,
        "ORT": 4,
        "ratio": 1,
    }
    return fitted(_columns(ranks, rows), width, foot=len(results) > 1)


def network_table(results: Sequence[TuneResult], width: int) -> Table:
    """Where the time goes: a row a task, the most expensive first, and one for all; at most `width` characters wide."""
    whole = sum(_spent(result) for result in results)
    rows = []
    for result in sorted(results, key=_spent, reverse=True):
        missing = math.isnan(result.best_seconds)
        rows.append(
            (
                *_measured(result),
                "-" if missing else latency(_spent(result)),
                f"{_spent(result) / whole:.1%}" if whole else "-",
                "-" if missing else f"{result.peak_share:.0%}",
            )
        )
    timed = [r for r in results if not math.isnan(r.best_seconds)]
    ideal = sum(_spent(result) * result.peak_share for result in timed)
    trials = sum(len(result.records) for result in results)
    failed = sum(sum(result.errors.values()) for result in results)
    times = sum(result.weight for result in results)
    reached = f"{ideal / whole:.0%}" if whole else "-"
    rows.append(("sum", str(times), "", str(trials), str(failed), "", "", latency(whole), "100.0%", reached))
    ranks = {
        "task": 0,
        "times": 2,
        "algorithm": 8,
        "trials": 6,
        "failed": 7,
        "latency": 3,
        "spread": 5,
        "in all": 0,
        "share": 0,
        "of peak": 1,
    }
    return fitted(_columns(ranks, rows), width, foot=True)


def _columns(ranks: Mapping[str, int], rows: Sequence[Sequence[str]]) -> list[Column]:
    cells = zip(*rows, strict=True)
    return [
        Column(title, of, rank, left=title == "task") for (title, rank), of in zip(ranks.items(), cells, strict=True)
    ]


def network_sentence(network: Mapping[str, Any]) -> str:
    """What the executable does, beside the reference."""
    parts = []
    if network["seconds"] is not None:
        spread = "" if network.get("spread") is None else f" (spread {share(network['spread'])})"
        parts.append(f"{network['name']}: {latency(network['seconds'])} as one executable{spread}")
    if network["reference_seconds"] is not None:
        ratio = network["reference_seconds"] / network["seconds"]
        parts.append(f"{network['reference']} {latency(network['reference_seconds'])} ({ratio:.2f}x)")
    if network["tasks_seconds"] is not None:
        parts.append(f"sum of the tasks {latency(network['tasks_seconds'])}")
    if network["max_error"] is not None:
        parts.append(f"largest relative error {network['max_error']:.1e}")
    if rounding := network.get("rounding"):
        worst = min(cost["decibels"] for cost in rounding.values())
        parts.append(f"{network['precision']}, {worst:.1f} dB beside float32")
    return ", ".join(parts)


def _spent(result: TuneResult) -> float:
    """Seconds of all occurrences of a task; 0 where none worked."""
    return 0.0 if math.isnan(result.best_seconds) else result.weight * result.best_seconds


def _total(results: Sequence[TuneResult], references: Sequence[float | None]) -> tuple[str, ...]:
    """Weighted sum over the tasks; of the reference only where it has all of them."""
    ours = sum(result.weight * result.best_seconds for result in results)
    flops = sum(result.weight * result.workload.flops for result in results)
    shares = sum(result.weight * result.best_seconds * result.peak_share for result in results)
    theirs = sum(
        result.weight * (math.nan if seconds is None else seconds)
        for result, seconds in zip(results, references, strict=True)
    )
    return (
        "weighted sum",
        str(sum(result.weight for result in results)),
        "",
        str(sum(len(result.records) for result in results)),
        str(sum(sum(result.errors.values()) for result in results)),
        latency(ours),
        "",
        *_rates(flops / ours * 1e-9, shares / ours, any(result.effective for result in results)),
        *_against(None if math.isnan(theirs) else theirs, ours),
    )


def _rates(gflops: float, peak_share: float, effective: bool) -> tuple[str, str]:
    """Cells of a rate, of which an effective one counts operations that the algorithm saves, and of its peak share."""
    if math.isnan(gflops):
        return "-", "-"
    return f"{gflops:.1f}{' eff.' if effective else ''}", f"{peak_share:.0%}"


def _against(reference: float | None, ours: float) -> tuple[str, str]:
    if reference is None:
        return ("-", "-")
    return (latency(reference), "-" if math.isnan(ours) else f"{reference / ours:.2f}x")
