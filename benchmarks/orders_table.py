"""Table of `benchmarks.orders`: the rate of each order of the operands, beside the fastest order, `einsum` and TVM."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.figures import beside, halves_difference, mean_and_ends, ratio_text
from benchmarks.markdown import table

EINSUM, TVM = "einsum ", "tvm "
"""Prefixes of the labels of peers; the rest is the order."""


def orders(document: Mapping[str, Any]) -> str:
    """Formats the mean ratios, and a line for each order.

    A line has our GFLOP/s, our seconds over those of our fastest order, GFLOP/s of both peers, and TVM's seconds over
    ours.
    """
    rows = document["rows"]
    lines = [line for name, row in rows.items() for line in _lines(name, row)]
    head = ["expression", "order", "trials", "GFLOP/s", "time to fastest order", "einsum GFLOP/s", "TVM GFLOP/s"]
    ratios = [ratio for row in rows.values() for ratio in list_ratios(row).values()]
    slowest = [_ratio(row, _fastest(row), max(_ours(row), key=row["seconds"].__getitem__)) for row in rows.values()]
    means = [["TVM's time over ours", *mean_and_ends(ratios)]] if ratios else []
    means += [["slowest order's time over the fastest's", *mean_and_ends(slowest)]]
    return "\n\n".join(
        (
            table(["", "geometric mean", "lowest", "highest", "rows"], means, left=1),
            table([*head, "TVM's time over ours"], lines, left=2),
        )
    )


def list_ratios(row: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    """Lists TVM's seconds over ours and their noise, by order."""
    return {label: _ratio(row, label, TVM + label) for label in _ours(row) if _has_tvm(row, label)}


def _lines(name: str, row: Mapping[str, Any]) -> list[list[object]]:
    """Returns the cells of a line for each order of an expression."""
    took = row["seconds"]
    lines: list[list[object]] = []
    for label in _ours(row):
        own, einsum, tvm = (
            f"{row['flops'] / took[key] * 1e-9:.1f}" if key in took else ""
            for key in (label, EINSUM + label, TVM + label)
        )
        slower = ratio_text(*_ratio(row, _fastest(row), label))
        over = beside(row, label, TVM + label) if _has_tvm(row, label) else ""
        lines.append([name, label, row["trials"][label], own, slower, einsum, tvm, over])
    return lines


def _ours(row: Mapping[str, Any]) -> list[str]:
    """Lists the labels of our own orders."""
    return [label for label in row["seconds"] if not label.startswith((EINSUM, TVM))]


def _fastest(row: Mapping[str, Any]) -> str:
    """Returns the label of our fastest order."""
    return min(_ours(row), key=row["seconds"].__getitem__)


def _has_tvm(row: Mapping[str, Any], label: str) -> bool:
    """Tells whether TVM was timed in an order."""
    return TVM + label in row["seconds"]


def _ratio(row: Mapping[str, Any], label: str, other: str) -> tuple[float, float]:
    """Computes another runtime's seconds over those of a label, and their noise."""
    return row["seconds"][other] / row["seconds"][label], halves_difference(row, label, other)
