"""Table of `benchmarks.row_wise`: ours without trials, ours with trials and the best peer, by length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.figures import halves_difference, is_known, ratio_text
from benchmarks.interleave import geometric_mean
from benchmarks.markdown import table
from benchmarks.row_kinds import KINDS

PEERS = ("torch", "onnxruntime", "openvino")
LEGEND = (
    "The cost of an empty call is subtracted for all peers. A time in parentheses has an interquartile range above its "
    "median, and counts in no ratio."
)


def row_wise(document: Mapping[str, Any]) -> str:
    """Formats a line for each kind and length, then the least and the geometric mean of each kind."""
    lines: list[list[object]] = []
    for row in _in_order(document):
        took = row["seconds"]
        known, best = _select_known(row)
        shown = [_us(took[who], who in known) if who in took else "" for who in ("untimed", "tuned", *PEERS)]
        for who in ("untimed", "tuned"):
            ratio = known[best] / known[who] if best is not None and who in known else None
            shown.append(ratio_text(ratio, halves_difference(row, who, best or who)))
        lines.append([row["kind"], f"{row['rows']}x{row['length']}", *shown])
    head = ["kind", "rows", "without trials µs", "with trials µs", "PyTorch µs", "ONNX Runtime µs", "OpenVINO µs"]
    body = table([*head, "without trials to best", "with trials to best"], lines)
    return f"{body}\n\n{means(document)}\n\n{LEGEND}"


def means(document: Mapping[str, Any]) -> str:
    """Returns the least and the geometric mean of the ratios of each kind."""
    ratios: dict[str, dict[str, list[float]]] = {}
    for row in _in_order(document):
        known, best = _select_known(row)
        for who in ("untimed", "tuned"):
            if best is not None and who in known:
                ratios.setdefault(row["kind"], {}).setdefault(who, []).append(known[best] / known[who])
    lines = []
    for kind, found in ratios.items():
        of = [found.get(who, []) for who in ("untimed", "tuned")]
        lines.append([kind, *(text for some in of for text in _summary(some)), len(of[0])])
    head = ["kind", "without trials: lowest", "geometric mean", "with trials: lowest", "geometric mean", "lengths"]
    return table(head, lines)


def _in_order(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    order = {kind: place for place, kind in enumerate(KINDS)}
    return sorted(document["rows"].values(), key=lambda row: (order[row["kind"]], row["length"]))


def _select_known(row: Mapping[str, Any]) -> tuple[dict[str, float], str | None]:
    """Returns the seconds that are known, and the fastest peer among them."""
    known = {who: seconds for who, seconds in row["seconds"].items() if is_known(row, who)}
    return known, min((peer for peer in PEERS if peer in known), key=known.__getitem__, default=None)


def _us(seconds: float, exact: bool) -> str:
    """Formats microseconds, in parentheses if they are unknown."""
    return f"{seconds * 1e6:.1f}" if exact else f"({seconds * 1e6:.1f})"


def _summary(ratios: Sequence[float]) -> tuple[str, str]:
    """Formats the least ratio and the geometric mean."""
    return (f"{min(ratios):.2f}x", f"{geometric_mean(ratios):.2f}x") if ratios else ("", "")
