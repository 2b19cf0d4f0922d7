"""Latency against accuracy of a network in mixed precision: the points that tables and charts show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from autotune.report.figures import worst_decibels
from autotune.report.tables import Column, fit_table
from autotune.titles import runtime_title
from autotune.units import latency

MIXED = "mixed"


@dataclass(frozen=True)
class Row:
    """One choice or runtime.

    Attributes:
        name: name of the choice, or of the runtime with its precision.
        seconds: latency of the network.
        decibels: signal to noise of the worst output; None where nothing is rounded.
        narrow: kernels in 16 bits; None where they are another runtime's.
        timed: true for a measurement, false for an estimate.
        int8: kernels on bytes.
    """

    name: str
    seconds: float
    decibels: float | None
    narrow: int | None
    timed: bool
    int8: int = 0


def list_rows(network: Mapping[str, Any], bench_timings: Sequence[Mapping[str, Any]] = ()) -> list[Row]:
    """Lists estimated choices along the trade-off, the chosen one and timed ones; none without a mixture.

    Args:
        network: part `network` of the summary.
        bench_timings: timings that `autotune bench` has stored, which replace those of the run.
    """
    mixture = network.get("mixture")
    if not mixture:
        return []
    rows = [Row(p["name"], p["seconds"], p["decibels"], p["narrow"], False, p.get("int8", 0)) for p in mixture["front"]]
    count, in_bytes = len(mixture["narrow"]), len(mixture.get("int8", ()))
    rows.append(Row("chosen", mixture["seconds"], mixture["measured"], count, False, in_bytes))
    if bench_timings:
        narrow = {f"autotune {p['name']}": (p["narrow"], 0) for p in mixture["front"] if p["name"] != MIXED}
        narrow[f"autotune {MIXED}"] = (count, in_bytes)
        for each in bench_timings:
            if each["exact"] or each["decibels"] is not None:
                kernels, bytes_too = narrow.get(each["title"], (None, 0))
                rows.append(Row(each["title"], each["seconds"], each["decibels"], kernels, True, bytes_too))
        return rows
    if network.get("seconds") is not None:
        decibels = worst_decibels(network)
        rows.append(Row(f"autotune {MIXED}", network["seconds"], decibels, count, True, in_bytes))
    if network.get("reference_seconds") is not None:
        rows.append(Row(runtime_title(network["reference"], "float32"), network["reference_seconds"], None, None, True))
    return rows


def mixture_table(network: Mapping[str, Any], width: int) -> Table:
    """Makes a row for each point; at most `width` characters wide."""
    rows = list_rows(network)
    bytes_too = (network.get("mixture") or {}).get("bytes_allowed", False)
    in_bytes = ["-" if row.narrow is None else str(row.int8) for row in rows]
    columns = [
        Column("precision", [row.name for row in rows], left=True),
        Column("in 16 bits", ["-" if row.narrow is None else str(row.narrow) for row in rows], rank=2),
        *([Column("in int8", in_bytes, rank=2)] if bytes_too else []),
        Column("dB", ["exact" if row.decibels is None else f"{row.decibels:.1f}" for row in rows]),
        Column("latency", [latency(row.seconds) for row in rows]),
        Column("", ["timed" if row.timed else "estimated" for row in rows], rank=1, left=True),
    ]
    return fit_table(columns, width)
