"""Table of operators: our time and every peer's, and the ratio to the best peer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.figures import halves_difference, ratio_text
from benchmarks.interleave import geometric_mean
from benchmarks.markdown import table
from benchmarks.tuning import INFORMED_NOTE

PEERS = {
    "torch": "oneDNN ms",
    "inductor": "Inductor ms",
    "onnxruntime": "ONNX Runtime ms",
    "onnxruntime_blocked": "the same, blocked, ms",
    "openvino": "OpenVINO ms",
}
"""Peer → its column."""
DIRECT = (
    "Rates count the operations of the direct algorithm. A rate above the processor's peak (*) was reached with fewer "
    "operations. ≈: within measurement noise."
)


def fastest_peer(row: Mapping[str, Any]) -> str | None:
    """Returns the fastest peer of a row; None where no peer has the operator."""
    return min((name for name in PEERS if name in row["seconds"]), key=row["seconds"].__getitem__, default=None)


def ratio_to_best(row: Mapping[str, Any]) -> tuple[float | None, float]:
    """Computes seconds of the fastest peer over ours, and their noise; None where no peer has the operator."""
    best, seconds = fastest_peer(row), row["seconds"]
    return (None, 0.0) if best is None else (seconds[best] / seconds["ours"], halves_difference(row, "ours", best))


def operators(document: Mapping[str, Any]) -> str:
    """Formats our kernels against every peer, and the geometric mean of the ratios in each class."""
    timed = {name for row in document["rows"].values() for name in row["seconds"]}
    informed, peers = "shipped" in timed, {name: head for name, head in PEERS.items() if name in timed}
    header = [
        "operator",
        "autotune ms",
        *(["with shipped knowledge ms"] if informed else []),
        "GFLOP/s",
        "of peak",
        *peers.values(),
        *(["call-out ms"] if "library" in timed else []),
        "ratio to best",
        "weights",
    ]
    lines: list[list[object]] = []
    for row in document["rows"].values():
        seconds, peak = row["seconds"], row["peak_flops"]
        rate = row["flops"] / seconds["ours"]
        ratio, noise = ratio_to_best(row)
        above = "*" if rate > peak else ""
        lines.append(
            [
                row["title"],
                _ms(seconds["ours"]),
                *([_ms(seconds.get("shipped"))] if informed else []),
                f"{rate / 1e9:.0f}{above}",
                f"{rate / peak:.0%}",
                *(_ms(seconds.get(name)) for name in (*peers, "library") if name in timed),
                ratio_text(ratio, noise),
                "constant" if row["constant_weight"] else "",
            ]
        )
    note = DIRECT if informed else f"{DIRECT} {INFORMED_NOTE}"
    return "\n\n".join([table(header, lines), means(document), note])


def means(document: Mapping[str, Any]) -> str:
    """Returns the geometric mean of the ratios in each class."""
    ratios: dict[str, list[float]] = {}
    for row in document["rows"].values():
        ratio, _ = ratio_to_best(row)
        if ratio is not None:
            for kind in ("all", row["class"]):
                ratios.setdefault(kind, []).append(ratio)
    lines = [
        [kind, f"{geometric_mean(found):.2f}x", f"{min(found):.2f}x", f"{max(found):.2f}x", len(found)]
        for kind, found in ratios.items()
    ]
    return table(["class", "geometric mean", "lowest", "highest", "rows"], lines)


def _ms(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e3:.3f}"
