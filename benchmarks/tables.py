"""Tables of result files in Markdown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autotune.titles import INT8, runtime_title
from benchmarks import transfer_figures
from benchmarks.choices import choices
from benchmarks.figures import beside
from benchmarks.gpu.offline_table import offline
from benchmarks.gpu.table import beside_torch, network_beside_torch
from benchmarks.half_products import half_products
from benchmarks.hub_table import hub
from benchmarks.in_network import in_network
from benchmarks.language import language
from benchmarks.lengths import lengths
from benchmarks.markdown import table
from benchmarks.networks_table import networks
from benchmarks.operators_table import operators
from benchmarks.orders_table import orders
from benchmarks.precisions.table import precisions
from benchmarks.pytorch.table import pytorch
from benchmarks.pytorch.training.table import training
from benchmarks.row_wise_table import row_wise
from benchmarks.rows import ROWS
from benchmarks.scaling import scaling
from benchmarks.search.statistics import group_by_kind
from benchmarks.search.summary import speedups
from benchmarks.serving.table import serving
from benchmarks.sizes import sizes
from benchmarks.sparsity import sparsity
from benchmarks.survey.table import sealed_list, survey
from benchmarks.tvm_table import tvm, tvm_threads
from benchmarks.warm_start_table import warm_start

Document = dict[str, Any]
_ORDER = {row.name: place for place, row in enumerate(ROWS)}


def throughput(document: Document) -> str:
    """Formats candidates a second on one core, the target, and where the time of one goes."""
    header = ["scorer", "candidates", "at a time", "a second", "target", "of target", "trees", "rows", "µs a candidate"]
    lines = []
    for row in document["rows"].values():
        spent = ", ".join(f"{stage} {value:.2f}" for stage, value in row["microseconds"].items())
        lines.append(
            [
                row["scorer"],
                row["kind"],
                f"{row['batch']:,}",
                f"{row['per_second']:,.0f}",
                f"{row['target']:,}",
                f"{row['per_second'] / row['target']:.2f}x",
                row.get("trees", ""),
                _number(row.get("feature_rows"), ".1f"),
                spent,
            ]
        )
    return table(header, lines)


def seeds(document: Document) -> str:
    """Formats best and worst of the results of several seeds, and the ratio of the two."""
    header = ["operator", "trials", "seeds", "best ms", "worst ms", "worst over best"]
    lines = []
    for row in _in_order(document):
        best, worst = min(row["seconds"].values()), max(row["seconds"].values())
        shown = f"{(worst / best - 1) * 100:.0f} %"
        lines.append([row["title"], row["trials"], len(row["seconds"]), _ms(best), _ms(worst), shown])
    return table(header, lines)


def weights_only(document: Document) -> str:
    """Formats products with weights of a few bits: peers, data in floats and in bytes, and a plain read."""
    runtimes = {"autotune": "autotune", "onnxruntime": "ONNX Runtime", "openvino": "OpenVINO"}
    columns = {**runtimes, **{f"{name}_bytes": f"{title}, data in bytes" for name, title in runtimes.items()}}
    header = ["product", "read us", *(f"{title} us" for title in columns.values())]
    header += ["of the read's rate", "of the best peer, floats", "of the best peer, bytes"]
    lines = []
    for row in _in_order(document):
        seconds, decibels = row["seconds"], row["decibels"]
        line = [row["title"], f"{seconds['read'] * 1e6:.0f}"]
        for name in columns:
            noise = f" ({decibels[name]:.0f} dB)" if name.endswith("_bytes") and name in decibels else ""
            line.append(f"{seconds[name] * 1e6:.0f}{noise}" if name in seconds else "")
        fastest = min(seconds[name] for name in ("autotune", "autotune_bytes"))
        line.append(f"{seconds['read'] / fastest:.0%}")
        for kind in ("", "_bytes"):
            best = min(
                (seconds[f"{n}{kind}"] for n in runtimes if n != "autotune" and f"{n}{kind}" in seconds), default=0
            )
            line.append(f"{best / seconds[f'autotune{kind}']:.2f}x" if best else "")
        lines.append(line)
    return table(header, lines)


def quantized_networks(document: Document) -> str:
    """Formats networks in int8 beside the most accurate peer and the fastest one, calibrated on the same inputs."""
    header = ["network", "int8 layers", "autotune int8 dB", "most accurate peer's dB", "of", "autotune int8 ms"]
    header += ["fastest peer's ms", "of", "ratio"]
    lines = []
    for row in _in_order(document):
        ours, *peers = row["decibels"]
        best = max(peers, key=row["decibels"].__getitem__)
        layers = f"{row['layers']} of {row['layers'] + row['float_layers']}"
        line = [row["title"], layers, f"{row['decibels'][ours]:.1f}", f"{row['decibels'][best]:.1f}", _int8(best)]
        if seconds := row["seconds"]:
            fastest = min(peers, key=seconds.__getitem__)
            line += [_ms(seconds[ours]), _ms(seconds[fastest]), _int8(fastest), beside(row, ours, fastest)]
        else:
            line += ["", "", "", ""]
        lines.append(line)
    return table(header, lines)


def _int8(label: str) -> str:
    """Formats a runtime with its precision, and the recipe that quantised its model."""
    runtime, _, recipe = label.partition(", ")
    return ", ".join(part for part in (runtime_title(runtime, INT8), recipe) if part)


def vta(document: Document) -> str:
    """Formats layers on the simulated VTA: TVM's published schedules and tuned ones, and how busy these keep it."""
    header = [
        "layer",
        "published cycles",
        "tuned cycles",
        "gain",
        "one thread",
        "GEMM, published",
        "GEMM, tuned",
        "at most",
        "of that",
        "port",
    ]
    lines = []
    for name in sorted(document["rows"], key=lambda name: int(name[1:])):
        row = document["rows"][name]
        cycles, shares = row["cycles"], row["gemm_utilisation"]
        lines.append(
            [
                name,
                *(_number(cycles[which], ",.0f") for which in ("published", "tuned")),
                f"{cycles['published'] / cycles['tuned']:.2f}x",
                _number(cycles["one thread"], ",.0f"),
                *(f"{shares[which] * 100:.1f} %" for which in ("published", "tuned", "bound")),
                f"{shares['tuned'] / shares['bound'] * 100:.1f} %",
                f"{row['port_utilisation'] * 100:.1f} %",
            ]
        )
    return table(header, lines)


def scheduling(document: Document) -> str:
    """Formats the results of both schedulers, and when gradient is where round robin ends."""
    header = [
        "network",
        "tasks",
        "trials",
        "round robin ms",
        "gradient ms",
        "ratio",
        "gradient is there after",
        "share",
    ]
    lines = [
        [
            row["name"],
            row["tasks"],
            budget["trials"],
            *(_ms(budget["final_seconds"][name]) for name in ("round_robin", "gradient")),
            _number(budget["final_seconds"]["gradient"] / budget["final_seconds"]["round_robin"], ".3f"),
            budget["reached_after"] or "over twice as many",
            _number(budget["reached_after"] and budget["reached_after"] / budget["trials"] * 100, ".0f", " %"),
        ]
        for row in document["rows"].values()
        for budget in row["budgets"]
    ]
    return table(header, lines)


def search(document: Document) -> str:
    """Formats the trials of searches, and how many times fewer they are than at random; measured spaces come first."""
    parts, faster = [], speedups(document["rows"])
    for kind, names in group_by_kind(document["rows"]).items():
        rows = [document["rows"][name] for name in names]
        methods = list(dict.fromkeys(name for row in rows for name in row["methods"]))
        parts.append(f"**{'Measured on the processor' if kind == 'CPU' else 'On the simulated accelerator'}**:")
        for share in rows[0]["good"]:
            header = ["task", "class", "candidates", f"reach {share}", "random, exact", *methods]
            lines: list[list[object]] = []
            for row in rows:
                cells = [_trials(row["methods"].get(name), share) for name in methods]
                expected = f"{row['random_trials'][share]:,.0f}"
                lines.append(
                    [row["title"], row["class"], f"{row['candidates']:,}", row["good"][share], expected, *cells]
                )
            means = [["search", "fewer trials than random", "95 % interval", "tasks", "searches cut off"]]
            for name, found in faster.get(kind, {}).get(share, {}).items():
                value, low, high = found["ratio"]
                bound = "at least " if found["cut_off"] else ""
                cells = [f"{bound}{value:.1f}x", f"{low:.1f}x to {high:.1f}x", found["tasks"], found["cut_off"]]
                means.append([name, *cells])
            parts += [table(header, lines), table(means[0], means[1:])]
    return "\n\n".join(parts)


def models(document: Document) -> str:
    """Formats scores of cost models on unseen networks, with intervals; test networks come first."""
    parts = []
    for role in ("test", "validation"):
        if role not in document["rows"]:
            continue
        row = document["rows"][role]
        metrics = list(STUDY_HEADS)
        header = ["model", *STUDY_HEADS.values(), "programs/s", "learned in s"]
        lines: list[list[object]] = []
        for name, model in row["models"].items():
            figures = [with_ends(*model[m]) for m in metrics]
            learned = f"{model['fit_seconds']:.1f}" if model["fit_seconds"] else ""
            lines.append([name, *figures, _number(model["programs_per_second"], ",.0f"), learned])
        networks = ", ".join(f"{name} ({count} layers)" for name, count in row["networks"].items())
        first = next(iter(row["models"]))
        behind: list[list[object]] = [
            [name, f"{found['value']:+.3f}", f"{found['p']:.3f}"]
            for name, found in ((n, _behind(m)) for n, m in row["models"].items())
            if found is not None and name != "ceiling"
        ]
        parts += [
            f"**{'Test' if role == 'test' else 'Validation'} networks**: {networks}. They have "
            f"{sum(row['tasks']['programs']):,} programs. Models learned from {row['learned_from']:,} other programs, "
            f"with {row['seeds']} seeds ({row['machine']}; pools {row['registered']}).",
            table(header, lines),
            table(["model", f"lead of {first} in normalised top-1", "p"], behind),
        ]
    return "\n\n".join(parts)


STUDY_HEADS = {
    "normalised1": "normalised top-1",
    "top1": "top-1",
    "top5": "top-5",
    "pairwise": "pairwise",
    "tau": "Kendall's τ",
    "recall": "recall@30",
    "best1": "Best@1",
}
"""Metric → column of the table of cost models."""


def with_ends(value: float, low: float | None, high: float | None) -> str:
    """Formats a figure and its interval, if there is one."""
    return f"{value:.3f}" if low is None or high is None else f"{value:.3f} ({low:.3f}–{high:.3f})"


def _behind(model: dict[str, Any]) -> dict[str, float] | None:
    if "behind_first" not in model:
        return None
    value, _, _, p = model["behind_first"]["normalised1"]
    return {"value": value, "p": p}


def _trials(method: dict[str, Any] | None, share: str) -> str:
    """Formats the mean over seeds; a cut-off search counts as its bound, see `benchmarks.search.statistics`."""
    if method is None:
        return ""
    trials = method["trials"][share]
    cut = trials.count(None)
    mean = sum(method["budget"] if t is None else t for t in trials) / len(trials)
    return f"over {mean:,.0f} ({cut} of {len(trials)} cut off)" if cut else f"{mean:,.0f}"


def transfer(document: Document) -> str:
    """Formats how many times fewer trials searches with transfer from other tasks need."""
    return transfer_figures.table([transfer_figures.Row.from_json(row) for row in document["rows"].values()])


TABLES: dict[str, Callable[[Document], str]] = {
    **{f"networks_{budget}_{threads}": networks for budget, threads in (("0", 2), ("10", 2), ("1000", 2), ("0", 1))},
    "scheduling": scheduling,
    "operators": operators,
    "gradients": operators,
    "tvm": tvm,
    "tvm_long": tvm,
    "tvm_threads": tvm_threads,
    "throughput": throughput,
    "seeds": seeds,
    "quantized_networks": quantized_networks,
    "weights_only": weights_only,
    "sparsity": sparsity,
    "precisions": precisions,
    "pytorch": pytorch,
    "training": training,
    "vta": vta,
    "search": search,
    "models": models,
    "transfer": transfer,
    "choices": choices,
    "half_products": half_products,
    "serving": serving,
    "row_wise": row_wise,
    "orders": orders,
    "scaling": scaling,
    "language_2": language,
    "language_1": language,
    "lengths": lengths,
    "sizes": sizes,
    "in_network": in_network,
    "survey": survey,
    "sealed": sealed_list,
    "gpu": beside_torch,
    "gpu_network": network_beside_torch,
    "gpu_offline": offline,
    "hub": hub,
    "warm_start": warm_start,
}


def _in_order(document: Document) -> list[dict[str, Any]]:
    if "state" in document:  # in the order of the benchmark
        return list(document["rows"].values())
    names = sorted(document["rows"], key=lambda name: (_ORDER.get(name, len(_ORDER)), name))
    return [document["rows"][name] for name in names]


def _ms(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e3:.3f}"


def _number(value: float | None, form: str, unit: str = "") -> str:
    return "" if value is None else f"{value:{form}}{unit}"
