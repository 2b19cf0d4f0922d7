"""The page: what its template shows of runs."""

from __future__ import annotations

import math
import time
import zlib
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from autotune import __version__
from autotune.naming import leaves
from autotune.report.html.charts import SERIES, Curve, bar, step_chart
from autotune.report.html.data import FinalTiming, RunData, Step, TaskData, TaskKey
from autotune.report.html.tradeoff import tradeoff_chart
from autotune.report.mixed import list_rows
from autotune.report.terminal import metrics_sentence
from autotune.units import duration, latency, select_unit, share

MOST_HOSTS = 6
"""Hosts of a run that are described, those with most trials."""

OPEN_CARDS = 4
"""Cards of curves that a page opens with; the others are folded."""

NEAR = 1.05
"""Factor of the best latency up to which a latency counts as near."""


def page(runs: Sequence[RunData]) -> str:
    """Renders the document, which compares all runs with the first."""
    _tell_apart(runs)
    parts = {
        "comparison": _comparison(runs) if len(runs) > 1 else None,
        "cards": _cards(runs),
        "mixtures": _mixtures(runs),
        "failures": _failures(runs),
        "phases": _phases(runs),
        "configuration": _configuration(runs),
        "hosts": _hosts(runs),
    }
    shown = {
        "Runs": True,
        "Comparison": parts["comparison"],
        "Tasks": True,
        "Precision": parts["mixtures"],
        "Tuning curves": True,
        "Failures": True,
        "Where time went": parts["phases"],
        "Configuration": True,
        "Hosts": parts["hosts"],
    }
    sections = [name for name, inside in shown.items() if inside]
    title = f"autotune: {', '.join(run.name for run in runs)}"
    now = time.strftime("%Y-%m-%d %H:%M")
    template = environment().get_template("page.html")
    return template.render(runs=runs, title=title, sections=sections, version=__version__, now=now, **parts) + "\n"


@cache
def environment() -> Environment:
    """Loads the templates of this folder, which escape all text that is no `Markup`."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(SERIES=SERIES, NEAR=NEAR, MOST_HOSTS=MOST_HOSTS, OPEN_CARDS=OPEN_CARDS)
    environment.filters.update(
        anchor=lambda key: f"task-{zlib.crc32('|'.join(key).encode()):08x}",
        slug=lambda name: name.lower().replace(" ", "-"),
        latency=lambda seconds: latency(seconds, "–"),
        share=lambda value: share(value, "–"),
        figure=lambda value: "–" if math.isnan(value) else f"{value:,.1f}",
        percent=lambda value: "–" if math.isnan(value) else f"{value:.0%}",
        times=lambda value: "–" if math.isnan(value) else f"{value:.2f}×",
        decibels=lambda value: "–" if math.isnan(value) else f"{value:.1f} dB",
        duration=duration,
        picture=lambda data: Markup("data:image/png;base64," + b64encode(data).decode()),
        metrics=metrics_sentence,
    )
    environment.tests["known"] = lambda value: not math.isnan(value)
    return environment


def _tell_apart(runs: Sequence[RunData]) -> None:
    """Gives runs of one name their folder's name, and a number where even that is the same."""
    names = [run.name for run in runs]
    for run in runs:
        if names.count(run.name) > 1:
            run.name = f"{run.name} ({run.path.absolute().name})"
    seen: dict[str, int] = {}
    for run in runs:
        seen[run.name] = seen.get(run.name, 0) + 1
        if seen[run.name] > 1:
            run.name = f"{run.name} #{seen[run.name]}"


def _names(runs: Sequence[RunData]) -> dict[TaskKey, str]:
    """Names the tasks of all runs, those of the first run first, in order of their time."""
    names: dict[TaskKey, str] = {}
    for run in runs:
        for task in run.tasks_by_time:
            names.setdefault(task.key, task.name)
    return names


@dataclass(frozen=True)
class ComparisonCell:
    """A task in one of several runs; NaN where it is not there or nothing worked."""

    seconds: float
    ratio: float
    near: int | None
    fastest: bool


def _comparison(runs: Sequence[RunData]) -> dict[str, Any]:
    """Lists rows of (key, name, a `ComparisonCell` for each run), and the geometric means of the ratios below them."""
    rows = [(key, name, _compare(key, runs)) for key, name in _names(runs).items()]
    rows = [row for row in rows if row[2]]
    foot: list[object] = ["geometric mean"]
    for place in range(len(runs)):
        ratios = [entries[place].ratio for _, _, entries in rows if not math.isnan(entries[place].ratio)]
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else math.nan
        foot += [f"of {len(ratios)}", environment().filters["times"](mean), ""]
    return {"rows": rows, "foot": foot}


def _compare(key: TaskKey, runs: Sequence[RunData]) -> list[ComparisonCell]:
    """Compares a task among the runs; returns an empty list if fewer than two have it."""
    tasks = [run.task(key) for run in runs]
    if sum(task is not None for task in tasks) < 2:
        return []
    best = min((task.seconds for task in tasks if task and not math.isnan(task.seconds)), default=math.nan)
    lowest = min((task.gains[-1].seconds for task in tasks if task and task.gains), default=math.nan)
    base = tasks[0].seconds if tasks[0] else math.nan
    entries = []
    for task in tasks:
        seconds = task.seconds if task else math.nan
        near = task.trials_to(lowest * NEAR) if task else None
        entries.append(ComparisonCell(seconds, base / seconds, near, seconds == best))
    return entries


@dataclass(frozen=True)
class _Series:
    """One run's part of a card."""

    run: str
    number: int
    steps: Sequence[Step]
    dots: Sequence[tuple[float, float, float]]  # number of the trial, clock, seconds
    trials: int
    clock: float
    final_timing: FinalTiming | None


def _cards(runs: Sequence[RunData]) -> list[dict[str, Any]]:
    """Draws charts of the weighted sum, if a run has several tasks, and of each task."""
    cards: list[dict[str, Any]] = []
    if any(len(run.tasks) > 1 for run in runs):
        sums = [
            _Series(run.name, n, run.steps, [], run.sum.trials, run.clock, run.final_timing)
            for n, run in enumerate(runs)
        ]
        name = "Weighted sum of all tasks"
        cards.append({"key": None, "name": name, "note": "", "charts": _charts(name, sums), "texts": []})
    for key, name in _names(runs).items():
        there = [(number, run.name, run.task(key)) for number, run in enumerate(runs)]
        series = [
            _Series(run, number, task.gains, _dots(task), task.trials, task.clocks[-1], task.final_timing)
            for number, run, task in there
            if task is not None and task.records
        ]
        note = f"{key.target}, {key.conditions}" if key.conditions else key.target
        texts = [
            (kind if len(runs) == 1 else f"{kind} of {run}", text)
            for _, run, task in there
            if task is not None
            for kind, text in (("schedule", task.schedule), ("program", task.program))
            if text
        ]
        cards.append({"key": key, "name": name, "note": note, "charts": _charts(name, series), "texts": texts})
    return cards


def _mixtures(runs: Sequence[RunData]) -> list[dict[str, Any]]:
    """Draws latency against accuracy of each run in mixed precision."""
    sections = []
    for number, run in enumerate(runs):
        if rows := list_rows(run.network, run.bench_timings):
            picture = Markup(tradeoff_chart(f"{run.name}: latency against accuracy", rows))
            sections.append({"number": number, "rows": rows, "chart": picture})
    return sections


def _charts(name: str, series: Sequence[_Series]) -> list[Markup]:
    """Draws the best latency over trials and over time; returns an empty list if no trial worked."""
    seconds = [step.seconds for entry in series for step in entry.steps]
    if not seconds:
        return []
    scale, unit = select_unit(min(seconds))
    over_trials, over_time = ([_curve(entry, scale, over) for entry in series] for over in ("trials", "clock"))
    return [
        Markup(step_chart(f"{name}: best latency over trials", "trials", unit, over_trials)),
        Markup(step_chart(f"{name}: best latency over time", "seconds", unit, over_time)),
    ]


def _curve(entry: _Series, scale: float, over: str) -> Curve:
    """Makes the line of a run over `trials` or over the `clock`, seconds multiplied with `scale`."""
    steps = [(float(getattr(step, over)), step.seconds * scale) for step in entry.steps]
    dots = [(number if over == "trials" else clock, seconds * scale) for number, clock, seconds in entry.dots]
    end: float = getattr(entry, over)
    mark = None
    if entry.final_timing is not None:
        seconds, low, high = (value * scale for value in entry.final_timing)
        mark = (float(end), seconds, low, high)
    return Curve(entry.run, entry.number, steps, dots, end, mark)


def _dots(task: TaskData) -> list[tuple[float, float, float]]:
    """Lists (number of the trial, clock, seconds) of the trials that worked."""
    numbered = enumerate(zip(task.records, task.clocks, strict=True), 1)
    return [(float(n), clock, record.seconds) for n, (record, clock) in numbered if record.ok]


def _failures(runs: Sequence[RunData]) -> list[list[object]]:
    """Lists error class, trials of each run, and the message of one trial."""
    classes = sorted({name for run in runs for name in run.errors})
    examples = {str(r.error): r.message for run in reversed(runs) for r in reversed(run.records) if not r.ok}
    return [[name, *(run.errors[name] for run in runs), examples[name]] for name in classes]


def _phases(runs: Sequence[RunData]) -> list[dict[str, Any]]:
    """Lists the time of each run by phase; runs without phases are left out."""
    lines = []
    for number, run in enumerate(runs):
        amounts, what = list(run.phases.items()), "the driver's time"
        if not amounts:
            amounts, what = [("build", run.building), ("check and time", run.running)], "the processes' time"
        whole = sum(amount for _, amount in amounts)
        if whole > 0:
            shown = [(name, amount, amount / whole) for name, amount in amounts]
            picture = Markup(bar(f"{run.name}: {what}", amounts))
            lines.append({"number": number, "what": what, "amounts": shown, "bar": picture})
    return lines


def _configuration(runs: Sequence[RunData]) -> dict[str, Any] | None:
    """Lists all keys of the configurations, and those that differ; None if no run has a configuration."""
    configured_runs = [run for run in runs if run.config]
    if not configured_runs:
        return None
    rows = _rows([_flat(run.config) for run in configured_runs])
    unlike = [row for row in rows if len(set(row[1:])) > 1]
    return {"names": [run.name for run in configured_runs], "rows": rows, "unlike": unlike}


def _hosts(runs: Sequence[RunData]) -> dict[str, Any] | None:
    """Describes the hosts that measured most; None where none is known."""
    names, columns = [], []
    for run in runs:
        for number, (host, trials) in enumerate(run.hosts[:MOST_HOSTS], 1):
            names.append(f"{run.name}, host {number}" if len(run.hosts) > 1 else run.name)
            columns.append({**({"measurements": str(trials)} if trials else {}), **_flat(host)})
    return {"names": names, "rows": _rows(columns)} if columns else None


def _rows(columns: Sequence[Mapping[str, str]]) -> list[list[str]]:
    """Makes a row for every key: the key, and its value in each column."""
    keys = dict.fromkeys(key for values in columns for key in values)
    return [[key, *(values.get(key, "–") for values in columns)] for key in keys]


def _flat(values: Mapping[str, Any]) -> dict[str, str]:
    return {name: "null" if value is None else str(value) for name, value in leaves(values)}
