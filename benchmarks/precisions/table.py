"""Table of networks in several precisions: milliseconds and decibels of every runtime, and ratios to the best peer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from autotune.graph.precision import FULL
from autotune.titles import runtime_title
from benchmarks.figures import beside
from benchmarks.interleave import geometric_mean
from benchmarks.markdown import table
from benchmarks.precisions.torch_runtime import TITLES

Row = Mapping[str, Any]

ORDER = ("onnxruntime", "openvino", "openvino-as-installed", *TITLES)
"""Columns of peers."""

SLACK = 3.0
"""Decibels by which a peer may be less accurate in the second of the three comparisons."""

SENTENCES = (
    "Cells are milliseconds and signal-to-noise ratios in decibels, relative to ONNX Runtime in float32. A ratio is a "
    "peer's time divided by ours. `best peer` is the fastest peer with at least our decibels, without slack; float32 "
    "peers always count, as they differ by the order of sums alone. `fastest` is the fastest of all peers, however "
    "accurate. ≈: within measurement noise."
)


def title(label: str, row: Row) -> str:
    """Returns the title of a runtime, with its precision."""
    if label in TITLES:
        return TITLES[label]
    runtime, _, precision = label.partition(" ")
    return runtime_title(runtime, precision or FULL, row.get("taken", {}).get(label, ""))


def is_ours(label: str) -> bool:
    """Tells whether a label is one of our executables."""
    return label.startswith("autotune ")


def ratio(row: Row, ours: str, slack: float = 0.0) -> float | None:
    """Computes seconds of the fastest peer that counts over ours; None where either was not timed.

    Args:
        row: row of a network.
        ours: label of one of our executables.
        slack: decibels by which a peer may be less accurate and counts all the same.
    """
    best = _best_peer(row, ours, slack)
    return None if best is None else row["seconds"][best] / row["seconds"][ours]


def _best_peer(row: Row, ours: str, slack: float) -> str | None:
    """Returns the fastest peer that counts, if ours was timed."""
    seconds = row["seconds"]
    peers = [peer for peer in seconds if not is_ours(peer) and _counts(row, peer, ours, slack)]
    return min(peers, key=seconds.__getitem__) if ours in seconds and peers else None


def _counts(row: Row, peer: str, ours: str, slack: float) -> bool:
    decibels = row["decibels"]
    if peer not in decibels or _in_float32(row, peer):  # without decibels: what others are compared with
        return True
    return math.isinf(slack) or (ours in decibels and bool(decibels[peer] >= decibels[ours] - slack))


def _in_float32(row: Row, peer: str) -> bool:
    return bool(row.get("taken", {}).get(peer, FULL if peer == "openvino" else "") == FULL)


def precisions(document: Mapping[str, Any]) -> str:
    """Formats the table; rows of a network with several budgets are adjacent."""
    rows = sorted(document["rows"].values(), key=lambda row: (row["name"], row["trials"]))
    parts = [SENTENCES, _lines(rows), *_means(rows), *_short(rows), *_missing(rows)]
    return "\n\n".join(part for part in parts if part)


def means(document: Mapping[str, Any]) -> str:
    """Returns the geometric means of the ratios; "" where no row has one."""
    return "".join(_means(list(document["rows"].values())))


def _labels(rows: Sequence[Row]) -> tuple[list[str], list[str]]:
    """Lists labels of our executables, and of peers, that any row has."""
    found = dict.fromkeys(label for row in rows for name in ("seconds", "decibels", "missing") for label in row[name])
    return [label for label in found if is_ours(label)], [label for label in ORDER if label in found]


def _lines(rows: Sequence[Row]) -> str:
    ours, peers = _labels(rows)
    header = ["network", "trials", *(_heading(label, rows) for label in (*ours, *peers))]
    header += [f"{precision} / {which}" for precision in map(_precision, ours) for which in ("best peer", "fastest")]
    lines: list[list[object]] = []
    for row in rows:
        ratios = [_times(row, label, slack) for label in ours for slack in (0.0, float("inf"))]
        cells = [_cell(row, label) for label in (*ours, *peers)]
        lines.append([row["title"], row["trials"], *cells, *ratios])
    return table(header, lines)


def _precision(label: str) -> str:
    return label.partition(" ")[2]


def _heading(label: str, rows: Sequence[Row]) -> str:
    """Returns a label's title if all rows give it the same."""
    found = {title(label, row): None for row in rows if label in row["seconds"] or label in row["decibels"]}
    accuracies = dict.fromkeys(row["accuracy"] for row in rows if label == "autotune mixed" and "accuracy" in row)
    more = ", ".join(each if isinstance(each, str) else f"{each:g} dB" for each in accuracies)
    name = next(iter(found)) if len(found) == 1 else title(label, {})
    return f"{name} ({more})" if more else name


def _cell(row: Row, label: str) -> str:
    if label in row["missing"]:
        return "missing"
    took = f"{row['seconds'][label] * 1e3:.3f}" if label in row["seconds"] else ""
    noise = f"{row['decibels'][label]:.1f} dB" if label in row["decibels"] else ""
    return ", ".join(part for part in (took, noise) if part)


def _times(row: Row, ours: str, slack: float) -> str:
    best = _best_peer(row, ours, slack)
    return "" if best is None else beside(row, ours, best)


def _means(rows: Sequence[Row]) -> list[str]:
    """Formats geometric means of the ratios, a line for each precision, budget and rule of which peers count."""
    rules = {
        "best peer, none less accurate": 0.0,
        f"best peer, at most {SLACK:g} dB less accurate": SLACK,
        "fastest peer, however accurate": float("inf"),
    }
    lines: list[list[object]] = []
    for label in _labels(rows)[0]:
        for trials in sorted({row["trials"] for row in rows}):
            mine = [row for row in rows if row["trials"] == trials]
            for rule, slack in rules.items():
                values = [value for row in mine if (value := ratio(row, label, slack)) is not None]
                if values:
                    mean = f"{geometric_mean(values):.2f}x"
                    lines.append(
                        [f"{_heading(label, mine)} beside the {rule}", trials, mean, f"{min(values):.2f}x", len(values)]
                    )
    return [table(["comparison", "trials", "geometric mean", "lowest", "rows"], lines)] if lines else []


def _short(rows: Sequence[Row]) -> list[str]:
    """Explains which mixed networks are less accurate on these inputs than requested on others."""
    cases = []
    for row in rows:
        asked = row.get("accuracy")
        wanted = row["decibels"].get("openvino-as-installed") if isinstance(asked, str) else asked
        got = row["decibels"].get("autotune mixed")
        if wanted is not None and got is not None and got < wanted:
            cases.append(f"{row['title']} after {row['trials']} trials ({got:.1f} instead of {wanted:.1f} dB)")
    items = "\n".join(f"- {case}" for case in cases)
    return [f"Mixed precision is less accurate than requested on these inputs:\n\n{items}"] if cases else []


def _missing(rows: Sequence[Row]) -> list[str]:
    """Explains why columns are missing, in a sentence for each reason."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        for label, why in row["missing"].items():
            reasons.setdefault((title(label, row), why), []).append(row["title"])
    told = [f"{name} of {', '.join(dict.fromkeys(which))}: {why}" for (name, why), which in reasons.items()]
    return [f"Missing: {'; '.join(told)}."] if told else []
