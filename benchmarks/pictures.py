"""Pictures of README and docs/benchmarks.md, from the result files: `python -m benchmarks.pictures`.

The speed-ups of README's table, searches and their cost, networks beside the fastest peer, more trials, more threads,
and cost models with their intervals. A picture whose results are missing is not drawn.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import readme_table, results, tvm_table
from benchmarks.interleave import geometric_mean
from benchmarks.networks_table import OURS, list_peers
from benchmarks.networks_table import ratio as network_ratio
from benchmarks.search.statistics import group_by_kind
from benchmarks.worst import SOURCES, list_lowest

METRICS = {"normalised1": "normalised top-1", "top1": "top-1", "pairwise": "pairwise", "tau": "Kendall's τ"}
"""Metric of a cost model → title of its panel."""
Documents = Mapping[str, Mapping[str, Any] | None]
"""Results by name; None: not measured. A second processor's results are `FOLDER/NAME`."""


def new_figure(width: float, height: float) -> Any:
    """Returns an empty figure of a size in inches, which no window shows."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def draw_networks(documents: Documents) -> Any | None:
    """Draws a bar for each network: the fastest peer's time over ours without trials, with the measurement noise.

    Points are the same networks on other processors.
    """
    document = documents["networks_0_2"]
    if document is None:
        return None
    bars = sorted(list_network_ratios(document), key=lambda bar: bar.ratio)
    heights = {bar.title: place for place, bar in enumerate(bars)}
    figure = new_figure(8.0, 0.26 * len(bars) + 1.3)
    axes = figure.subplots()
    for held_out, color in ((False, "C0"), (True, "C2")):
        drawn = [bar for bar in bars if bar.held_out == held_out]
        axes.barh(
            [heights[bar.title] for bar in drawn],
            [bar.ratio - 1.0 for bar in drawn],  # bars begin where both take as long
            0.7,
            left=1.0,
            color=color,
            xerr=[bar.ratio * bar.noise for bar in drawn],
            error_kw={"ecolor": "0.3", "elinewidth": 0.8},
            label="held out" if held_out else "learned from",
        )
    others = [other for name, other in documents.items() if other is not None and "/" in name]
    for other, marker in zip(others, itertools.cycle("osD"), strict=False):
        points = [bar for bar in list_network_ratios(other) if bar.title in heights]
        at = [heights[bar.title] for bar in points]
        axes.plot([bar.ratio for bar in points], at, marker, color="0.2", markersize=3, label=_find_cpu(other))
    axes.axvline(1.0, color="0.2", linewidth=1.0)
    axes.set(
        yticks=range(len(bars)),
        yticklabels=[bar.title for bar in bars],
        xlabel="time of the fastest peer / time of autotune; float32, no trials; "
        f"bars: {_find_cpu(document)}, lines: noise",
        ylim=(-0.6, len(bars) - 0.4),
    )
    axes.set_xscale("log")
    ticks = [0.8, 1, 1.25, 1.5, 2, 2.5]
    axes.set_xticks(ticks, [f"{tick:g}x" for tick in ticks])
    axes.minorticks_off()
    axes.tick_params(labelsize=8)
    axes.xaxis.label.set_fontsize(8)
    figure.legend(loc="outside upper center", ncols=5, fontsize=8, frameon=False)
    return figure


def _find_cpu(document: Mapping[str, Any]) -> str:
    return str(next(iter(document["rows"].values()))["made"]["cpu"])


@dataclass(frozen=True)
class NetworkRatio:
    """Time of the fastest peer over ours for a network, in float32.

    Attributes:
        title: name of the network; held_out: whether nothing was trained on it.
        ratio: the ratio; noise: relative difference between halves of the turns.
    """

    title: str
    held_out: bool
    ratio: float
    noise: float


def list_network_ratios(document: Mapping[str, Any]) -> list[NetworkRatio]:
    """Lists the networks that were timed beside a peer."""
    wide, _ = list_peers(document)
    timed = [(row, *network_ratio(row, OURS, wide)) for row in document["rows"].values()]
    return [
        NetworkRatio(row["title"], bool(row.get("held_out")), ratio, noise)
        for row, ratio, noise in timed
        if ratio is not None
    ]


BUDGETS = {"none": "networks_0_2", "10 a kernel": "networks_10_2", "1,000": "networks_1000_2"}
"""Trials of a network → its results."""


def draw_trials(documents: Documents) -> Any | None:
    """Times after more trials: of networks over those after none, and of operators beside TVM's after as many."""
    lines = _over_trials(documents)
    if not lines:
        return None
    tvm = next((found for name in ("tvm_long", "tvm") if (found := documents[name]) and len(_counts(found)) > 1), None)
    figure = new_figure(9.0 if tvm else 6.0, 3.6)
    panels = figure.subplots(1, 2 if tvm else 1, squeeze=False)[0]
    _networks_over_trials(panels[0], lines)
    if tvm:
        _operators_over_trials(panels[1], tvm)
    for panel in panels:
        panel.set_ylim(0, panel.get_ylim()[1] * 1.06)  # the values stand over their points
        panel.grid(alpha=0.25, linewidth=0.5)
        panel.tick_params(labelsize=8)
        panel.title.set_fontsize(9)
    return figure


def _over_trials(documents: Documents) -> dict[tuple[str, str], list[float]]:
    """Computes times after every number of trials over the time after none, by network and processor."""
    seconds: dict[str, dict[tuple[str, str], float]] = {
        label: {
            (row["title"], row["made"]["cpu"]): row["seconds"][OURS]
            for name, document in documents.items()
            if document is not None and name.rpartition("/")[2] == wanted
            for row in document["rows"].values()
            if OURS in row["seconds"]
        }
        for label, wanted in BUDGETS.items()
    }
    none = seconds["none"]
    return {
        key: [of[key] / none[key] for of in seconds.values()]
        for key in none
        if all(key in of for of in seconds.values())
    }


def _networks_over_trials(panel: Any, lines: Mapping[tuple[str, str], Sequence[float]]) -> None:
    for line in lines.values():
        panel.plot(range(len(BUDGETS)), line, color="C0", alpha=0.3, linewidth=0.8)
    means = [geometric_mean([line[place] for line in lines.values()]) for place in range(len(BUDGETS))]
    _with_values(panel, range(len(BUDGETS)), means, "C0", f"geometric mean of {len(lines)} networks")
    panel.set(
        xticks=range(len(BUDGETS)), xticklabels=list(BUDGETS), xlabel="trials", title="time / time without trials"
    )
    panel.legend(fontsize=8, frameon=False, loc="lower left")


def _with_values(
    panel: Any, positions: Sequence[int], values: Sequence[float], color: str, label: str, under: bool = False
) -> None:
    """Draws a line of points, each with its value over it, or `under` it."""
    panel.plot(positions, values, "o-", color=color, label=label)
    for place, value in zip(positions, values, strict=True):
        beside = {"xytext": (0, -14 if under else 6), "textcoords": "offset points", "ha": "center", "fontsize": 8}
        panel.annotate(f"{value:.2f}", (place, value), color=color, **beside)


def _counts(document: Mapping[str, Any]) -> list[int]:
    """Lists trials after which our kernels and TVM's were timed for every operator that TVM takes."""
    rows = [row for row in document["rows"].values() if "seconds" in row]
    return [n for n in tvm_table.trial_counts(rows) if all(tvm_table.ratio(row, n)[0] is not None for row in rows)]


def _operators_over_trials(panel: Any, document: Mapping[str, Any]) -> None:
    rows = [row for row in document["rows"].values() if "seconds" in row]
    counts = _counts(document)
    end = f"ours {counts[-1]}"
    for who, title, color in (("ours", "autotune", "C0"), ("tvm", "TVM", "C1")):
        line = [geometric_mean([row["seconds"][f"{who} {n}"] / row["seconds"][end] for row in rows]) for n in counts]
        _with_values(panel, counts, line, color, title, under=who == "ours")
    panel.set_xscale("log")
    panel.set_xticks(counts, [f"{n:,}" for n in counts])
    panel.minorticks_off()
    panel.set(xlabel="trials", title=f"{len(rows)} operators: time / autotune's after {counts[-1]:,}, geometric mean")
    panel.legend(fontsize=8, frameon=False, loc="lower left")


def draw_models(documents: Documents) -> Any | None:
    """Points with intervals: every cost model by every metric, on unseen networks."""
    document = documents["models"]
    if document is None or "test" not in document["rows"]:
        return None
    models = document["rows"]["test"]["models"]
    names = list(models)[::-1]
    figure = new_figure(9.0, 0.3 * len(names) + 1.0)
    panels: Sequence[Any] = figure.subplots(1, len(METRICS), sharey=True)
    for panel, (metric, title) in zip(panels, METRICS.items(), strict=True):
        for place, name in enumerate(names):
            value, low, high = models[name][metric]
            ends = [[value - low], [high - value]] if low is not None and high is not None else None
            panel.errorbar([value], [place], xerr=ends, fmt="o", color="C0" if place == len(names) - 1 else "0.35")
        panel.set(title=title, yticks=range(len(names)), yticklabels=names)
        panel.title.set_fontsize(9)
        panel.tick_params(labelsize=8)
        panel.grid(alpha=0.25, linewidth=0.5, axis="x")
    return figure


SEARCHES = {
    "uniform": "random search",
    "evolution + lightgbm, no estimate": "evolution, cost model trained in the search",
    "evolution + lightgbm": "the same, with the roofline estimate",
    "evolution + lightgbm, pretrained": "the same, and the pretrained model",
}
"""Method of `benchmarks.search` → its name in the picture."""
MOST_TRIALS = 1000


def draw_search(documents: Documents) -> Any | None:
    """Draws lines: speed of the best schedule so far over trials, a mean of all spaces, on each kind of machine."""
    document = documents["search"]
    if document is None:
        return None
    kinds = group_by_kind(document["rows"])
    figure = new_figure(9.0, 3.4)
    panels = figure.subplots(1, len(kinds), sharey=True, squeeze=False)[0]
    titles = {"CPU": "measured on a CPU", "VTA": "on the simulated VTA"}
    for panel, (kind, names) in zip(panels, kinds.items(), strict=True):
        rows = [document["rows"][name] for name in names]
        for number, (method, title) in enumerate(SEARCHES.items()):
            curves = [row["methods"][method]["curve"] for row in rows if method in row["methods"]]
            if not curves:
                continue
            at = sorted({trials for curve in curves for trials in curve["trials"] if trials <= MOST_TRIALS})
            lines = [np.interp(at, curve["trials"], curve["mean"]) for curve in curves]
            panel.plot(at, np.mean(lines, axis=0), color=f"C{number}", label=title)
        panel.set_xscale("log")
        panel.set_xticks([1, 10, 100, 1000], ["1", "10", "100", "1,000"])
        panel.set(xlabel="trials", title=f"{len(rows)} search spaces, {titles.get(kind, kind)}", ylim=(0.3, 1.02))
        panel.grid(alpha=0.25, linewidth=0.5)
        panel.tick_params(labelsize=8)
        panel.title.set_fontsize(9)
    panels[0].set_ylabel("speed of the best so far / best known", fontsize=9)
    figure.legend(
        *panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=2, fontsize=8, frameon=False
    )
    return figure


def draw_speedups(documents: Documents) -> Any | None:
    """Draws points: every case of README's table, and the speed-up over all cases of a line."""
    lines = readme_table.lines_from({name: document for name, document in documents.items() if document is not None})
    if not lines:
        return None
    figure = new_figure(8.0, 0.42 * len(lines) + 1.0)
    axes = figure.subplots()
    for height, (_, shown, _) in enumerate(reversed(lines)):
        cases = shown.cases
        ratios = [ratio for ratio, _ in cases.ratios]
        axes.plot(ratios, [height] * len(ratios), "o", color="C0", alpha=0.35, markersize=5, markeredgewidth=0)
        mean = readme_table.speed_up(cases)
        axes.plot([mean], [height], "|", color="C3", markersize=18, markeredgewidth=2.5)
    axes.axvline(1.0, color="0.2", linewidth=1.0)
    axes.set_xscale("log")
    ticks = [0.5, 1, 2, 4, 8, 16, 32, 64, 128]
    axes.set_xticks(ticks, [f"{tick:g}x" for tick in ticks])
    axes.minorticks_off()
    axes.set(
        yticks=range(len(lines)),
        yticklabels=[line.title.replace("`", "") for line, _, _ in reversed(lines)],
        xlabel="speed-up of each case (points) and of all (bar); left of 1x autotune is slower",
        xlim=(0.6, 140),
    )
    axes.tick_params(labelsize=9)
    axes.xaxis.label.set_fontsize(9)
    axes.grid(alpha=0.25, linewidth=0.5, axis="x")
    return figure


def draw_scaling(documents: Documents) -> Any | None:
    """Draws lines: speed-up of each network over the number of threads, by the programs; points where it was timed."""
    document = documents["scaling"]
    if document is None:
        return None
    figure = new_figure(6.0, 3.6)
    axes = figure.subplots()
    most = 1
    for number, (name, row) in enumerate(document["rows"].items()):
        expected = {int(n): sum(layer["seconds"] for layer in layers) for n, layers in row["threads"].items()}
        counts = sorted(expected)
        most = max(most, counts[-1])
        line = [expected[1] / expected[n] for n in counts]
        axes.plot(counts, line, color=f"C{number}", label=name)
        timed = {int(n): beside["seconds"]["autotune"] for n, beside in row.get("measured", {}).items()}
        if 1 in timed:
            axes.plot(list(timed), [timed[1] / seconds for seconds in timed.values()], "o", color=f"C{number}")
    axes.plot([1, most], [1, most], color="0.7", linewidth=0.8, linestyle="--")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    ticks = [2**power for power in range(most.bit_length())]
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.set_yticks(ticks, [f"{tick}x" for tick in ticks])
    axes.set(xlabel="threads; lines: expected from the programs, points: measured", ylabel="speed-up")
    axes.legend(fontsize=8, frameon=False)
    axes.grid(alpha=0.25, linewidth=0.5)
    axes.tick_params(labelsize=8)
    return figure


def draw_search_cost(documents: Documents) -> Any | None:
    """Draws points: seconds of TVM's search of an operator over those of ours, at equal trials."""
    document = documents["tvm"]
    if document is None:
        return None
    seconds = [tvm_table.search_seconds(row) for row in document["rows"].values() if "tuning" in row]
    if not seconds:
        return None
    ours, theirs = zip(*seconds, strict=True)
    figure = new_figure(5.0, 3.6)
    axes = figure.subplots()
    axes.plot(ours, theirs, "o", color="C0", alpha=0.7, markersize=5, markeredgewidth=0)
    span = [min(ours) * 0.8, max(ours) * 1.25]
    for factor in (1, 10, 100):
        axes.plot(span, [each * factor for each in span], color="0.7", linewidth=0.8, linestyle="--")
        axes.annotate(f"{factor}x", (span[1], span[1] * factor), fontsize=8, color="0.4", va="center")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks([5, 10, 20, 40], ["5", "10", "20", "40"])
    axes.set_yticks([10, 100, 1000], ["10", "100", "1,000"])
    axes.minorticks_off()
    axes.set(xlabel="seconds of our search, an operator a point", ylabel="seconds of TVM's search, as many trials")
    axes.tick_params(labelsize=8)
    axes.grid(alpha=0.25, linewidth=0.5)
    return figure


def draw_worst(documents: Documents) -> Any | None:
    """Draws a bar for each of the lowest ratios of all comparisons."""
    cases = list_lowest(documents)
    if not cases:
        return None
    figure = new_figure(8.0, 0.28 * len(cases) + 0.9)
    axes = figure.subplots()
    heights = range(len(cases) - 1, -1, -1)
    axes.barh(heights, [case.ratio for case in cases], 0.7, color="C3")
    for height, case in zip(heights, cases, strict=True):
        axes.annotate(
            f"{case.ratio:.2f}x",
            (case.ratio, height),
            xytext=(3, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
        )
    axes.axvline(1.0, color="0.2", linewidth=1.0)
    axes.set(
        yticks=heights,
        yticklabels=[f"{case.comparison.partition(',')[0]}: {case.case}" for case in cases],
        xlabel="time of the fastest peer / time of autotune",
        xlim=(0, 1.15),
    )
    axes.tick_params(labelsize=8)
    axes.xaxis.label.set_fontsize(8)
    return figure


PICTURES: Mapping[str, tuple[Callable[[Documents], Any | None], Sequence[str]]] = {
    "speedups.png": (draw_speedups, tuple(dict.fromkeys(line.table for line in readme_table.LINES))),
    "search.png": (draw_search, ("search",)),
    "networks.png": (draw_networks, ("networks_0_2",)),
    "trials.png": (draw_trials, (*BUDGETS.values(), "tvm", "tvm_long")),
    "models.png": (draw_models, ("models",)),
    "scaling.png": (draw_scaling, ("scaling",)),
    "search_cost.png": (draw_search_cost, ("tvm",)),
    "worst.png": (draw_worst, SOURCES),
}
"""File among the pages → function that draws it, and names of its results."""


def draw(folder: Path = results.DOCS, results_folder: Path = results.FOLDER) -> list[Path]:
    """Draws all that was measured; returns the files."""
    files = []
    for name, (picture, wanted) in PICTURES.items():
        figure = picture(_documents(wanted, results_folder))
        if figure is not None:
            figure.savefig(folder / name, dpi=110)
            files.append(folder / name)
    return files


def _documents(names_wanted: Sequence[str], results_folder: Path) -> Documents:
    return {**dict.fromkeys(names_wanted), **results.load_all(names_wanted, results_folder)}


def main() -> int:
    """Draws them."""
    for path in draw():
        sys.stderr.write(f"{path} is drawn\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
