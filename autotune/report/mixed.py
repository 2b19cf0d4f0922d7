"""Latency against accuracy of a network in mixed precision: the points that tables and charts show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from autotune.report.tables import Column, fitted
from autotune.titles import title_of
from autotune.units import latency

MIXED = "mixed"


@dataclass(frozen=True)
class Row:
    """One choice or runtime.

    Attributes:
        name: of it; of a runtime with its precision.
        seconds: of the network.
        decibels: signal to noise of the worst output; None where nothing is rounded.
        narrow: kernels in 16 bits; None where they are another runtime's.
        timed: whether it was timed, and not estimated.
    """

    name: str
    seconds: float
    decibels: float | None
    narrow: int | None
    timed: bool


def rows_of(network: Mapping[str, Any], benched: Sequence[Mapping[str, Any]] = ()) -> list[Row]:
    """Estimated choices along the trade-off, what was chosen, and what was timed; none without a mixture.

    Args:
        network: that part of the summary.
        benched: what `autotune bench` has kept of it, which stands for what the run timed itself.
    """
    mixture = network.get("mixture")
    if not mixture:
        return []
    rows = [Row(p["name"], p["seconds"], p["decibels"], p["narrow"], False) for p in mixture["front"]]
    count = len(mixture["narrow"])
    rows.append(Row("chosen", mixture["seconds"], mixture["measured"], count, False))
    if benched:
        narrow = {f"autotune {p['name']}": p["narrow"] for p in mixture["front"] if p["name"] != MIXED}
        narrow[f"autotune {MIXED}"] = count
        known = [each for each in benched if each["exact"] or each["decibels"] is not None]
        return rows + [Row(e["title"], e["seconds"], e["decibels"], narrow.get(e["title"]), True) for e in known]
    if network.get("seconds") is not None:
        decibels = [cost["decibels"] for cost in network["rounding"].values()]
        rows.append(Row(f"autotune {MIXED}", network["seconds"], min(decibels, default=None), count, True))
    if network.get("reference_seconds") is not None:
        rows.append(Row(title_of(network["reference"], "float32"), network["reference_seconds"], None, None, True))
    return rows


def mixture_table(network: Mapping[str, Any], width: int) -> Table:
    """A row a point; at most `width` characters wide."""
    rows = rows_of(network)
    columns = [
        Column("precision", [row.name for row in rows], left=True),
        Column("in 16 bits", ["-" if row.narrow is None else str(row.narrow) for row in rows], rank=2),
        Column("dB", ["exact" if row.decibels is None else f"{row.decibels:.1f}" for row in rows]),
        Column("latency", [latency(row.seconds) for row in rows]),
        Column("", ["timed" if row.timed else "estimated" for row in rows], rank=1, left=True),
    ]
    return fitted(columns, width)
