"""Table of each runtime's callers: requests a second, and the latency that one of a hundred exceeds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.markdown import table

_WAYS = {"shared": "all cores, shared", "side_by_side": "a core each"}


def serving(document: Mapping[str, Any]) -> str:
    """Formats a line for each network, way of serving and number of callers."""
    header = [
        "network",
        "threads of a call",
        "callers",
        *(f"{name} float32 requests/s" for name in ("autotune", "ONNX Runtime", "OpenVINO")),
        "ratio to best",
        *(f"{name} float32 p99 ms" for name in ("autotune", "ONNX Runtime", "OpenVINO")),
    ]
    return table(header, [line for row in document["rows"].values() for line in _lines(row)])


def _lines(row: Mapping[str, Any]) -> list[list[object]]:
    runtimes = row["runtimes"]
    ours = runtimes["autotune"]
    lines: list[list[object]] = []
    for callers, mine in ours.items():
        each = [runtimes.get(name, {}).get(callers) for name in ("autotune", "onnxruntime", "openvino")]
        best = max((figures["requests_per_second"] for figures in each[1:] if figures), default=None)
        lines.append(
            [
                row["name"],
                _WAYS[row["way"]],
                callers,
                *(f"{figures['requests_per_second']:.1f}" if figures else "" for figures in each),
                f"{mine['requests_per_second'] / best:.2f}x" if best else "",
                *(f"{figures['p99_seconds'] * 1e3:.2f}" if figures else "" for figures in each),
            ]
        )
    return lines
