"""Table of networks: our time and every peer's in float32, in bfloat16, and the costs of compiling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.figures import halves_difference, ratio_text, with_processors
from benchmarks.interleave import geometric_mean
from benchmarks.markdown import table

Row = Mapping[str, Any]

OURS, NARROW = "autotune float32", "autotune bfloat16"
PEERS = {
    "onnxruntime": "ONNX Runtime",
    "openvino": "OpenVINO",
    "torch": "PyTorch",
    "torch-inductor": "Inductor",
}
"""Peer in float32 → its column."""
NARROW_PEERS = {
    "openvino-as-installed": "OpenVINO as installed",
    "torch-autocast": "PyTorch autocast",
    "torch-inductor-autocast": "Inductor autocast",
}
"""Peer that rounds to 16 bits, or may."""
LEGEND = (
    "Milliseconds. `ratio`: time of the fastest float32 peer divided by ours.{} ≈: within measurement noise. `built` "
    "includes tuning, if there are trials. `MiB`: resident memory of a process that has run."
)
SAID_OF_NARROW = (
    " `ratio in bfloat16`: time of the fastest of all peers, in float32 or 16 bits, divided by ours in bfloat16."
)


def fastest_peer(row: Row, peers: Sequence[str]) -> str | None:
    """Returns the fastest of some peers; None where none was timed."""
    return min((peer for peer in peers if peer in row["seconds"]), key=row["seconds"].__getitem__, default=None)


def ratio(row: Row, ours: str, peers: Sequence[str]) -> tuple[float | None, float]:
    """Computes seconds of the fastest of some peers over ours, and their noise; None if either was not timed."""
    best = fastest_peer(row, peers)
    if best is None or ours not in row["seconds"]:
        return None, 0.0
    return row["seconds"][best] / row["seconds"][ours], halves_difference(row, ours, best)


def list_peers(document: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Lists peers that were timed: in float32, and the ones that round to 16 bits, or may."""
    timed = {label for row in document["rows"].values() for label in row["seconds"]}
    return [peer for peer in PEERS if peer in timed], [peer for peer in NARROW_PEERS if peer in timed]


def networks(document: Mapping[str, Any]) -> str:
    """Formats every network, then geometric means over held-out networks and the others."""
    rows = list(document["rows"].values())
    peers, narrow = list_peers(document)
    both = any(NARROW in row["seconds"] for row in rows)
    header = ["network", "held out", "autotune", *(PEERS[p] for p in peers), "ratio"]
    header += ["autotune bfloat16", *(NARROW_PEERS[p] for p in narrow), "ratio in bfloat16"] if both else []
    header += ["kernels", "built s", "MiB on disk", "MiB", "ONNX Runtime MiB"]
    lines: list[list[object]] = []
    for row in rows:
        built = row["built"].get(OURS)
        speed_up, noise = ratio(row, OURS, peers)
        cells: list[object] = [row["title"], "yes" if row["held_out"] else "", _ms(row, OURS)]
        cells += [*(_ms(row, peer) for peer in peers), ratio_text(speed_up, noise)]
        if both:
            speed_up, noise = ratio(row, NARROW, [*peers, *narrow])
            cells += [_ms(row, NARROW), *(_ms(row, peer) for peer in narrow), ratio_text(speed_up, noise)]
        resident = row["resident_bytes"]
        cells += [row["tasks"], f"{built['seconds']:.0f}" if built else "", _mib(built and built["bytes"])]
        lines.append([*cells, _mib(resident.get(OURS)), _mib(resident.get("onnxruntime"))])
    parts = [means(document), table(*with_processors(header, lines, rows))]
    return "\n\n".join([LEGEND.format(SAID_OF_NARROW if both else ""), *parts, *_missing(rows)])


def means(document: Mapping[str, Any]) -> str:
    """Returns geometric means in each precision: of all networks, of those that are held out, and of the others."""
    wide, narrow = list_peers(document)
    ratios: dict[tuple[str, str], list[float]] = {}
    for row in document["rows"].values():
        for kind, ours, peers in (("float32", OURS, wide), ("bfloat16", NARROW, [*wide, *narrow])):
            value, _ = ratio(row, ours, peers)
            if value is not None:
                for group in ("all", "held out" if row["held_out"] else "learned from"):
                    ratios.setdefault((kind, group), []).append(value)
    lines = [
        [kind, group, f"{geometric_mean(of):.2f}x", f"{min(of):.2f}x", f"{max(of):.2f}x", len(of)]
        for (kind, group), of in sorted(ratios.items(), key=lambda item: (item[0][0] != "float32", item[0][1] != "all"))
    ]
    return table(["ours in", "networks", "geometric mean", "lowest", "highest", "rows"], lines)


def _missing(rows: Sequence[Row]) -> list[str]:
    """Explains why columns are missing."""
    told = [f"{peer} of {row['title']}: {why}" for row in rows for peer, why in row["missing"].items()]
    return [f"Missing: {'; '.join(told)}."] if told else []


def _ms(row: Row, label: str) -> str:
    seconds = row["seconds"].get(label)
    return "missing" if label in row["missing"] else "" if seconds is None else f"{seconds * 1e3:.2f}"


def _mib(nbytes: int | None) -> str:
    return "" if nbytes is None else f"{nbytes / 2**20:.0f}"
