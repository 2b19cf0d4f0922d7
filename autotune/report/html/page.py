"""The page: sections made of runs, one file with its style and no script."""

from __future__ import annotations

import math
import time
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from autotune import __version__
from autotune.report.html.charts import SERIES, Curve, bar, step_chart
from autotune.report.html.data import RunData, Step, TaskData, TaskKey
from autotune.report.html.markup import Markup, duration, element, figure, html, percent, table, times
from autotune.report.html.style import STYLE
from autotune.report.terminal import metrics_sentence
from autotune.units import latency, scale_of, share

POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""Nothing is asked of anywhere, and no script is run, whatever the names of tasks say."""

PEAK = "Of peak: of the float32 operations that the cores could do, or of what an accelerator could."

MOST_HOSTS = 6
"""Hosts of a run that are described, those with most trials."""

NEAR = 1.05
"""How many times the best latency counts as near to it."""


def page(runs: Sequence[RunData]) -> str:
    """The document; the first run is the one that others are compared with."""
    _tell_apart(runs)
    title = f"autotune: {', '.join(run.name for run in runs)}"
    sections = [
        ("Runs", _overview(runs)),
        ("Comparison", _comparison(runs) if len(runs) > 1 else ""),
        ("Tasks", Markup("".join(_tasks(run, n, len(runs) > 1) for n, run in enumerate(runs)) + element("p", PEAK))),
        ("Tuning curves", _curves(runs)),
        ("Failures", _failures(runs)),
        ("Where time went", _phases(runs)),
        ("Configuration", _configuration(runs)),
        ("Hosts", _hosts(runs)),
    ]
    shown = [(name, name.lower().replace(" ", "-"), inside) for name, inside in sections if inside]
    head = [
        Markup('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'),
        Markup('<meta name="color-scheme" content="light dark"><meta name="referrer" content="no-referrer">'),
        # Nothing is asked of anywhere, whatever the names of tasks say.
        Markup(
            "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        ),
        element("title", title),
        element("style", Markup(STYLE)),
    ]
    links = [element("a", name, href=f"#{anchor}") for name, anchor, _ in shown]
    body = [
        element("header", element("h1", title), element("nav", *links, aria_label="sections")),
        element(
            "main", *(element("section", element("h2", name), inside, id=anchor) for name, anchor, inside in shown)
        ),
        element("footer", f"autotune {__version__}, {time.strftime('%Y-%m-%d %H:%M')}"),
    ]
    document = element("html", element("head", *head), element("body", *body), lang="en")
    return f"<!DOCTYPE html>\n{document}\n"


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


def _latency(seconds: float) -> str:
    return latency(seconds, "–")


def _label(run: RunData, number: int) -> Markup:
    """A run's name with the colour that it has in charts."""
    return Markup(_key(number) + html(run.name))


def _key(number: int) -> Markup:
    return element("i", class_=f"key s{number % SERIES}")


def _overview(runs: Sequence[RunData]) -> Markup:
    columns = [
        "run",
        "tasks",
        "trials",
        "failed",
        "time",
        "latency",
        "of the network",
        "reference",
        "ratio",
        "read from",
    ]
    rows = []
    for number, run in enumerate(runs):
        whole, reference = _number(run.network.get("seconds")), _number(run.network.get("reference_seconds"))
        if not run.network:
            reference = sum(task.weight * task.reference_seconds for task in run.tasks) if run.tasks else math.nan
        rows.append(
            (
                _label(run, number),
                len(run.tasks),
                sum(len(task.records) for task in run.tasks),
                sum(run.errors.values()),
                duration(run.clock),
                _latency(run.seconds),
                _latency(whole),
                _latency(reference),
                times(reference / (whole if run.network else run.seconds)),
                element("span", run.path, class_="path"),
            )
        )
    notes = [element("p", f"{run.name}: {run.note}", class_="note") for run in runs if run.note]
    below = (
        "Latency: the best of all tasks, each as often as it occurs. "
        "Time: from the first trial to the last result, pauses of more than five minutes left out."
    )
    return Markup(table(columns, rows, range(1, 9)) + element("p", below) + "".join(notes))


def _tasks(run: RunData, number: int, several: bool) -> Markup:
    columns = ["task", "times", "algorithm", "trials", "failed", "latency", "spread", "in all", "share"]
    columns += ["GFLOP/s", "of peak"]
    beside = any(not math.isnan(task.reference_seconds) for task in run.tasks)
    measured = any(task.metrics for task in run.tasks)
    columns += [*(("reference", "its latency", "ratio") if beside else ()), *(("metrics",) if measured else ())]
    rows: list[Sequence[object]] = []
    for task in run.tasks:
        row: list[object] = [
            element("a", task.name, href=f"#{_anchor(task.key)}"),
            task.weight,
            task.algorithm or "–",
            len(task.records),
            task.failed,
            _latency(task.seconds),
            share(task.spread, "–"),
            _latency(task.weight * task.seconds),
            percent(task.weight * task.seconds / run.seconds),
            figure(task.gflops),
            percent(task.peak_share),
        ]
        if beside:
            row += [task.reference or "–", _latency(task.reference_seconds)]
            row += [times(task.reference_seconds / task.seconds)]
        rows.append([*row, *([metrics_sentence(task.metrics) or "–"] if measured else [])])
    if len(run.tasks) > 1:
        rows.append(_total(run, beside, measured))
    right = [1, 3, 4, 5, 6, 7, 8, 9, 10, *((12, 13) if beside else ())]
    body = table(columns, rows, right, foot=len(run.tasks) > 1)
    return Markup((element("h3", _label(run, number)) if several else "") + body)


def _total(run: RunData, beside: bool, measured: bool) -> list[object]:
    flops = sum(task.weight * task.flops for task in run.tasks)
    reference = sum(task.weight * task.reference_seconds for task in run.tasks)
    # A sum of shares of peak, each for as long as its task takes.
    share = sum(task.weight * task.seconds * task.peak_share for task in run.tasks) / run.seconds
    row: list[object] = [
        "sum",
        sum(task.weight for task in run.tasks),
        "",
        sum(len(task.records) for task in run.tasks),
        sum(task.failed for task in run.tasks),
        "",
        "",
        _latency(run.seconds),
        percent(run.seconds / run.seconds),
        figure(flops / run.seconds * 1e-9),
        percent(share),
    ]
    row += ["", _latency(reference), times(reference / run.seconds)] if beside else []
    return [*row, *([""] if measured else [])]


def _comparison(runs: Sequence[RunData]) -> Markup:
    first = runs[0]
    columns = ["task", *(what for _ in runs for what in ("latency", "ratio", "trials to near"))]
    groups: list[tuple[object, int]] = [("", 1), *((_label(run, number), 3) for number, run in enumerate(runs))]
    rows: list[Sequence[object]] = []
    ratios: list[list[float]] = [[] for _ in runs]
    for key, name in _keys(runs).items():
        found = [run.task(key) for run in runs]
        if sum(task is not None for task in found) < 2:
            continue
        best = min((task.seconds for task in found if task and not math.isnan(task.seconds)), default=math.nan)
        lowest = min((task.gains[-1].seconds for task in found if task and task.gains), default=math.nan)
        row: list[object] = [element("a", name, href=f"#{_anchor(key)}")]
        base = found[0].seconds if found[0] else math.nan
        for place, task in enumerate(found):
            seconds = task.seconds if task else math.nan
            ratio = base / seconds
            if not math.isnan(ratio):
                ratios[place].append(ratio)
            near = task.trials_to(lowest * NEAR) if task else None
            shown: object = _latency(seconds)
            row += [element("b", shown) if seconds == best else shown, times(ratio), "–" if near is None else near]
        rows.append(row)
    if not rows:
        told = "No task is in two of the runs: workload, target, threads and cache must be the same."
        return element("p", told)
    means = [math.exp(sum(map(math.log, found)) / len(found)) if found else math.nan for found in ratios]
    rows.append(
        [
            "geometric mean",
            *(c for mean, of in zip(means, ratios, strict=True) for c in (f"of {len(of)}", times(mean), "")),
        ]
    )
    told = (
        f"Ratio: the latency in {first.name} over that of the run, so above 1 is faster than {first.name}; its mean is "
        f"over the tasks that both have. Trials to near: until a trial was within {NEAR - 1:.0%} of the fastest trial "
        "of all these runs. Bold: the fastest."
    )
    body = table(columns, rows, range(1, len(columns)), foot=True, groups=groups)
    return Markup(body + element("p", told))


def _curves(runs: Sequence[RunData]) -> Markup:
    cards = []
    if any(len(run.tasks) > 1 for run in runs):
        whole: list[Any] = [
            (run.name, n, run.steps, [], sum(len(t.records) for t in run.tasks), run.clock)
            for n, run in enumerate(runs)
        ]
        cards.append(_card("Weighted sum of all tasks", "", whole))
    for key, name in _keys(runs).items():
        series: list[Any] = []
        for number, run in enumerate(runs):
            task = run.task(key)
            if task is not None and task.records:
                series.append((run.name, number, task.steps, _dots(task), len(task.records), task.clocks[-1]))
        told = f"{key.target}, {key.measured}" if key.measured else key.target
        cards.append(_card(name, told, series, _anchor(key)))
    legend = element("p", *(element("span", _label(run, n)) for n, run in enumerate(runs)), class_="legend")
    told = (
        "Best latency so far, over trials and over the time of the run; each dot is a trial that worked. Where the "
        "fastest were timed again at the end, the line ends at what the best of them stands with, as tables have it."
    )
    return Markup(element("p", told) + legend + element("div", *cards, class_="cards"))


def _card(name: str, told: str, series: Sequence[Any], anchor: str = "") -> Markup:
    steps: list[Step] = [step for entry in series for step in entry[2]]
    given = {"id": anchor} if anchor else {}
    if not steps:
        return element(
            "article", element("h3", name), element("p", "Nothing worked, or nothing was recorded."), **given
        )
    scale, unit = scale_of(min(step.seconds for step in steps))
    over_trials, over_time = [], []
    for run, number, found, dots, trials, clock in series:
        at = [(float(step.trials), step.seconds * scale) for step in found]
        over_trials.append(Curve(run, number, at, [(n, y * scale) for n, _, y in dots], trials))
        at = [(step.clock, step.seconds * scale) for step in found]
        over_time.append(Curve(run, number, at, [(x, y * scale) for _, x, y in dots], clock))
    charts = [
        step_chart(f"{name}: best latency over trials", "trials", unit, over_trials),
        step_chart(f"{name}: best latency over time", "seconds", unit, over_time),
    ]
    pair = element("div", *map(Markup, charts), class_="pair")
    return element("article", element("h3", name), *([element("p", told)] if told else []), pair, **given)


def _dots(task: TaskData) -> list[tuple[float, float, float]]:
    """(number of the trial, clock, seconds) of what worked."""
    numbered = enumerate(zip(task.records, task.clocks, strict=True), 1)
    return [(float(n), clock, record.seconds) for n, (record, clock) in numbered if record.ok]


def _failures(runs: Sequence[RunData]) -> Markup:
    classes = sorted({name for run in runs for name in run.errors})
    if not classes:
        return element("p", "No trial failed.")
    rows = []
    for name in classes:
        example = next(r.message for run in runs for r in run.records if str(r.error) == name)
        rows.append([name, *(run.errors[name] for run in runs), example])
    rows.append(["all", *(sum(run.errors.values()) for run in runs), ""])
    return table(["class", *(run.name for run in runs), "for example"], rows, range(1, len(runs) + 1), foot=True)


def _phases(runs: Sequence[RunData]) -> Markup:
    parts = []
    for number, run in enumerate(runs):
        amounts = list(run.phases.items())
        what = "the driver's time"
        if not amounts:
            amounts, what = [("build", run.building), ("check and time", run.running)], "the processes' time"
        picture = bar(f"{run.name}: {what}", amounts)
        whole = sum(amount for _, amount in amounts)
        if not picture:
            continue
        cells = (
            element("span", _key(place), f"{name} {duration(amount)}, {amount / whole:.0%}")
            for place, (name, amount) in enumerate(amounts)
        )
        told = (
            f"{what[0].upper()}{what[1:]}. All builds {duration(run.building)}, all checks and timings "
            f"{duration(run.running)}, {duration(run.clock)} from the first trial to the last result."
        )
        legend = element("p", *cells, class_="legend")
        parts.append(element("h3", _label(run, number)) + Markup(picture) + legend + element("p", told))
    return Markup("".join(parts))


def _configuration(runs: Sequence[RunData]) -> Markup:
    known = [run for run in runs if run.config]
    if not known:
        return element("p", "Records alone say nothing of the configuration.")
    flat = [_flat(run.config) for run in known]
    keys = list(dict.fromkeys(key for values in flat for key in values))
    rows = [[key, *(values.get(key, "–") for values in flat)] for key in keys]
    columns = ["key", *(run.name for run in known)]
    unlike = [row for row in rows if len(set(row[1:])) > 1]
    parts: list[object] = []
    if len(known) > 1:
        parts.append(table(columns, unlike) if unlike else element("p", "The runs have the same configuration."))
    parts.append(element("details", element("summary", f"all {len(rows)} keys"), table(columns, rows)))
    return Markup("".join(map(html, parts)))


def _flat(values: Mapping[str, Any], before: str = "") -> dict[str, str]:
    found: dict[str, str] = {}
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            found |= _flat(value, f"{before}{key}.")
        else:
            found[f"{before}{key}"] = "null" if value is None else str(value)
    return found


def _hosts(runs: Sequence[RunData]) -> Markup:
    columns, flat, left = ["key"], [], []
    for run in runs:
        for number, (host, trials) in enumerate(run.hosts[:MOST_HOSTS], 1):
            columns.append(f"{run.name}, host {number}" if len(run.hosts) > 1 else run.name)
            flat.append({**({"measurements": str(trials)} if trials else {}), **_flat(host)})
        if further := run.hosts[MOST_HOSTS:]:
            trials = sum(count for _, count in further)
            left.append(element("p", f"{run.name}: {len(further)} further hosts made {trials} measurements."))
    keys = list(dict.fromkeys(key for values in flat for key in values))
    if not flat:
        return Markup("")
    return Markup(table(columns, ([key, *(values.get(key, "–") for values in flat)] for key in keys)) + "".join(left))


def _keys(runs: Sequence[RunData]) -> dict[TaskKey, str]:
    """Tasks of all runs and their names, those of the first run first."""
    found: dict[TaskKey, str] = {}
    for run in runs:
        for task in run.tasks:
            found.setdefault(task.key, task.name)
    return found


def _anchor(key: TaskKey) -> str:
    """Name within the page that a task is linked by."""
    return f"task-{zlib.crc32('|'.join(key).encode()):08x}"


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)
