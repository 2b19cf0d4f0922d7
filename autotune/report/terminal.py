"""Results on the terminal: a table of the tasks, their sum beside the reference, where time went."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from autotune.report.figures import Figures, add_up, make_figures, worst_decibels
from autotune.report.mixed import mixture_table
from autotune.report.tables import Column, console_width, fit_table
from autotune.tuner.result import TuneResult
from autotune.units import certainty, latency, share
from costmodel.transfer import summary
from measure.steadiness import DISAGREE, disagreement

_MOST_NAMED = 4
"""Greatest number of tasks that a sentence names."""


def print_results(
    console: Console,
    results: Sequence[TuneResult],
    references: Sequence[float | None],
    wall: float,
    network: Mapping[str, Any] | None = None,
) -> None:
    """Prints the table and what belongs below it.

    Args:
        console: console to print on.
        results: result of each task.
        references: seconds of each task elsewhere.
        wall: the run's duration in seconds.
        network: the `network` part of the summary, where the tasks are those of a network.
    """
    width = console_width(console)
    if results:
        tasks = [make_figures(result, seconds) for result, seconds in zip(results, references, strict=True)]
        console.print(result_table(tasks, width) if network is None else network_table(tasks, width))
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
    if (sentence := exhausted_sentence(results)) is not None:
        console.print(sentence, markup=False, highlight=False, soft_wrap=True)
    if (sentence := transfer_sentence(results)) is not None:
        console.print(sentence, markup=False, highlight=False, soft_wrap=True)
    spent = sum(phases.values())
    if spent:
        shares = ", ".join(f"{name} {seconds / spent:.1%}" for name, seconds in phases.items())
        measured = sum(result.measured_count for result in results)
        console.print(
            f"{measured} trials in {spent:.1f} s ({measured / spent:.1f} a second; {shares}), {wall:.1f} s in all",
            highlight=False,
        )


def exhausted_sentence(results: Sequence[TuneResult]) -> str | None:
    """Says which tasks have fewer candidates than the trials that were asked for; None if no task has."""
    spent = [result for result in results if result.exhausted]
    if len(spent) == 1 and len(results) == 1:
        return f"{spent[0].name}: the space has {spent[0].candidates_text}; all were measured"
    if not spent:
        return None
    named = ", ".join(f"{result.name} ({result.candidates_text})" for result in spent[:_MOST_NAMED])
    more = f" and {len(spent) - _MOST_NAMED} more" if len(spent) > _MOST_NAMED else ""
    return f"spaces of which all candidates were measured: {named}{more}"


def transfer_sentence(results: Sequence[TuneResult]) -> str | None:
    """Says how programs of other tasks changed the searches; None where they were not used."""
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
    """Formats what a target counted in the best kernel: whole numbers, and shares as percentages."""
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


_Cells = tuple[str, int, Callable[[Figures], str], str]  # title, rank, cell of a task, cell of the last row


def result_table(tasks: Sequence[Figures], width: int) -> Table:
    """Makes a row for each task, and one for their weighted sum; at most `width` characters wide."""
    total = add_up(tasks)
    columns: list[_Cells] = [
        ("task", 0, lambda task: task.name, "weighted sum"),
        ("times", 9, lambda task: str(task.weight), str(total.weight)),
        ("algorithm", 8, lambda task: task.algorithm or "-", ""),
        ("trials", 6, lambda task: str(task.trials), str(total.trials)),
        ("failed", 7, lambda task: str(task.failures), str(total.failures)),
        ("latency", 0, lambda task: latency(task.seconds), latency(total.seconds)),
        ("spread", 3, lambda task: share(task.spread), ""),
        ("GFLOP/s", 1, _rate, _rate(total)),
        ("of peak", 2, _peak, _peak(total)),
        ("ORT", 4, lambda task: latency(task.reference_seconds), latency(total.reference_seconds)),
        ("ratio", 1, _ratio, _ratio(total)),
    ]
    return _table(columns, tasks, width, foot=len(tasks) > 1)


def network_table(tasks: Sequence[Figures], width: int) -> Table:
    """Makes a row for each task, the most expensive first, and one for all; at most `width` characters wide."""
    timed = [task for task in tasks if not math.isnan(task.seconds)]
    total, seconds = add_up(tasks), sum(task.total for task in timed)
    ordered = sorted(tasks, key=lambda task: 0.0 if math.isnan(task.total) else task.total, reverse=True)

    def part(task: Figures) -> str:
        return "-" if not seconds else "0.0%" if math.isnan(task.total) else f"{task.total / seconds:.1%}"

    columns: list[_Cells] = [
        ("task", 0, lambda task: task.name, "sum"),
        ("times", 2, lambda task: str(task.weight), str(total.weight)),
        ("algorithm", 8, lambda task: task.algorithm or "-", ""),
        ("trials", 6, lambda task: str(task.trials), str(total.trials)),
        ("failed", 7, lambda task: str(task.failures), str(total.failures)),
        ("latency", 3, lambda task: latency(task.seconds), ""),
        ("spread", 5, lambda task: share(task.spread), ""),
        ("in all", 0, lambda task: latency(task.total), latency(seconds)),
        ("share", 0, part, "100.0%"),
        ("of peak", 1, _peak, _peak(add_up(timed))),
    ]
    return _table(columns, ordered, width, foot=True)


def _table(columns: Sequence[_Cells], tasks: Sequence[Figures], width: int, foot: bool) -> Table:
    shown = [
        Column(title, [*map(cell, tasks), *([last] if foot else [])], rank, left=title == "task")
        for title, rank, cell, last in columns
    ]
    return fit_table(shown, width, foot)


def _rate(task: Figures) -> str:
    """Formats a rate; "eff." marks one that counts operations which the algorithm saves."""
    return "-" if math.isnan(task.gflops) else f"{task.gflops:.1f}{' eff.' if task.effective else ''}"


def _peak(task: Figures) -> str:
    return "-" if math.isnan(task.peak_share) else f"{task.peak_share:.0%}"


def _ratio(task: Figures) -> str:
    return "-" if math.isnan(task.ratio) else f"{task.ratio:.2f}x"


def network_sentence(network: Mapping[str, Any]) -> str:
    """Compares the executable with the reference."""
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
    if (worst := worst_decibels(network)) is not None:
        parts.append(f"{network['precision']}, {worst:.1f} dB beside float32")
    return ", ".join(parts)
