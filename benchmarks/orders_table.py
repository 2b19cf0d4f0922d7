"""Table of `benchmarks.orders`: the rate of each order of the operands, beside the fastest order and `einsum`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.figures import halves_difference, ratio_text
from benchmarks.markdown import table

EINSUM = "einsum "
"""Prefix of the labels of `einsum`; the rest is the order."""


def orders(document: Mapping[str, Any]) -> str:
    """Formats a line for each order: GFLOP/s, seconds over those of the fastest order, and `einsum`'s GFLOP/s."""
    lines: list[list[object]] = []
    for name, row in document["rows"].items():
        took = row["seconds"]
        ours = [label for label in took if not label.startswith(EINSUM)]
        best = min(ours, key=took.__getitem__)
        for label in ours:
            ratio = ratio_text(took[label] / took[best], halves_difference(row, label, best))
            other = took.get(EINSUM + label)
            rates = [f"{row['flops'] / seconds * 1e-9:.1f}" if seconds else "" for seconds in (took[label], other)]
            lines.append([name, label, row["trials"][label], rates[0], ratio, rates[1]])
    head = ["expression", "order", "trials", "GFLOP/s", "time to fastest order", "einsum GFLOP/s"]
    return table(head, lines, left=2)
