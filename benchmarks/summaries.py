"""Summaries of tables for docs/benchmarks.md: a few lines each, from the result files that the tables are from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks import language, networks_table, operators_table, row_wise_table, tvm_table
from benchmarks.figures import mean_and_ends
from benchmarks.gpu import table as gpu_table
from benchmarks.interleave import geometric_mean
from benchmarks.markdown import table
from benchmarks.precisions import table as precisions_table
from benchmarks.pytorch import table as pytorch_table
from benchmarks.readme_table import vta_gains
from benchmarks.search.summary import speedups
from benchmarks.stacks import STACKS
from benchmarks.survey import table as survey_table
from benchmarks.tables import STUDY_HEADS, with_ends

Document = dict[str, Any]

MODEL_METRICS = ("normalised1", "top1", "pairwise")
"""Metrics of cost models that the summary shows."""


def tvm(document: Document) -> str:
    """Returns the geometric means over all operators, and the costs of the searches."""
    return "\n\n".join(part for part in (tvm_table.means(document, single=False), tvm_table.cost(document)) if part)


def quantized_networks(document: Document) -> str:
    """Returns speed-ups of networks and of stacks of layers, and how many are more accurate than every peer."""
    lines: list[list[object]] = []
    for title, stacks in (("networks", False), ("stacks of eight equal layers", True)):
        rows = [row for row in document["rows"].values() if (row["title"] in STACKS) == stacks]
        found = [
            networks_table.ratio(row, "autotune", [who for who in row["seconds"] if who != "autotune"]) for row in rows
        ]
        ratios = [(ratio, noise) for ratio, noise in found if ratio is not None]
        better = sum(row["decibels"]["autotune"] >= max(row["decibels"].values()) for row in rows)
        if ratios:
            lines.append([title, *mean_and_ends(ratios), f"{better} of {len(rows)}"])
    header = ["int8", "geometric mean", "lowest", "highest", "rows", "most accurate of all"]
    return table(header, lines)


def language_models(document: Document) -> str:
    """Returns speed-ups over the fastest peer, for each kind of weights, of prompts and of steps."""
    lines: list[list[object]] = []
    for kind in language.kinds():
        for what, title in (("prefill", "prompts"), ("step", "one token")):
            rows = [row for row in document["rows"].values() if row["case"][0] == what]
            if ratios := language.compute_ratios(rows, kind):
                lines.append([kind, title, *mean_and_ends(ratios)])
    return table(["weights", "of", "geometric mean", "lowest", "highest", "rows"], lines)


def scheduling(document: Document) -> str:
    """Returns, for each budget, the final time by the gradient scheduler over that by round robin."""
    budgets: dict[int, list[float]] = {}
    for row in document["rows"].values():
        for budget in row["budgets"]:
            final = budget["final_seconds"]
            budgets.setdefault(budget["trials"], []).append(final["gradient"] / final["round_robin"])
    lines = [
        [trials, f"{geometric_mean(found):.3f}", f"{min(found):.3f}", f"{max(found):.3f}", len(found)]
        for trials, found in budgets.items()
    ]
    return table(["trials", "time by gradient / by round robin", "lowest", "highest", "networks"], lines)


def search(document: Document) -> str:
    """Returns how many times fewer trials than random search evolution needs to reach 95 % of the best."""
    lines: list[list[object]] = []
    for kind, shares in speedups(document["rows"]).items():
        share, methods = next(iter(shares.items()))
        for method in filter(lambda name: name.startswith("evolution"), methods):
            figures = methods[method]
            value, low, high = figures["ratio"]
            bound = "at least " if figures["cut_off"] else ""
            interval = f"{low:.1f}x to {high:.1f}x"
            lines.append([kind, method, share, f"{bound}{value:.1f}x", interval, figures["tasks"]])
    return table(["tasks", "search", "reach", "fewer trials than random", "95 % interval", "spaces"], lines)


def models(document: Document) -> str:
    """Returns the main metrics of every cost model on the test networks."""
    header = ["model", *(STUDY_HEADS[metric] for metric in MODEL_METRICS)]
    found = document["rows"]["test"]["models"]
    return table(header, [[name, *(with_ends(*of[metric]) for metric in MODEL_METRICS)] for name, of in found.items()])


def vta(document: Document) -> str:
    """Returns the speed-up over published schedules."""
    line = mean_and_ends([(gain, 0.0) for gain in vta_gains(document)])
    return table(["published cycles / tuned: geometric mean", "lowest", "highest", "layers"], [line])


SUMMARIES: dict[str, Callable[[Document], str]] = {
    "operators": operators_table.means,
    "row_wise": row_wise_table.means,
    "tvm": tvm,
    "tvm_long": tvm,
    "networks_0_2": networks_table.means,
    "pytorch": pytorch_table.overview,
    "scheduling": scheduling,
    "precisions": precisions_table.means,
    "quantized_networks": quantized_networks,
    "language_2": language_models,
    "search": search,
    "models": models,
    "survey": survey_table.overview,
    "vta": vta,
    "gpu": gpu_table.kinds,
    "gpu_network": gpu_table.network_lines,
}
"""Table → its summary."""
