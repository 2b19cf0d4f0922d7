"""The lowest ratios of all comparisons with peers, each with its reason where one is known.

Reasons are in `reasons.yaml`, by comparison and case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks import results
from benchmarks.figures import describe_machine, ratio_text
from benchmarks.headline import CLAIMS, Claim, load_claimed
from benchmarks.markdown import table
from benchmarks.orders_table import list_ratios
from benchmarks.survey.table import ratio_and_noise

Document = Mapping[str, Any]
COUNT = 10
"""Number of cases that the page shows."""
REASONS_FILE = Path(__file__).with_name("reasons.yaml")
HEADER = ["comparison", "case", "on", "ratio", "reason"]


@dataclass(frozen=True)
class CaseRatio:
    """One case of a comparison.

    Attributes:
        comparison: text of the claim, see `headline.Claim`.
        case: title of the row.
        ratio: seconds of the fastest peer over ours.
        noise: noise of the two.
        machine: processor and threads, or the GPU.
    """

    comparison: str
    case: str
    ratio: float
    noise: float
    machine: str


def load_compared(folder: Path = results.FOLDER) -> dict[str, Document]:
    """Reads the result files of all comparisons.

    Raises:
        MixedTable: a file has rows that must not be in one table.
    """
    return {**load_claimed(folder), **results.load_all(list(OTHERS), folder)}


def list_lowest(documents: Mapping[str, Document | None], count: int = COUNT) -> list[CaseRatio]:
    """Lists the cases of the lowest ratios, the lowest first; a case of several tables counts once, at its lowest."""
    lowest: dict[tuple[str, str], CaseRatio] = {}
    for case in list_cases(documents):
        key = case.comparison, case.case
        if key not in lowest or case.ratio < lowest[key].ratio:
            lowest[key] = case
    return sorted(lowest.values(), key=lambda case: case.ratio)[:count]


def list_cases(documents: Mapping[str, Document | None]) -> Iterator[CaseRatio]:
    """Lists the cases of result files by name, see `SOURCES`."""
    for name, document in documents.items():
        table_name = name.rpartition("/")[2]
        if document is not None and table_name in OTHERS:
            yield from OTHERS[table_name](document)
        elif document is not None and "state" in document:
            for claim in CLAIMS[table_name](document):
                yield from _list_claimed_cases(claim, document)


def _list_claimed_cases(claim: Claim, document: Document) -> Iterator[CaseRatio]:
    for name, row in document["rows"].items():
        ratio, noise = claim.ratio(row) if claim.of(row) else (None, 0.0)
        if ratio is not None:
            machine = describe_machine(row["made"]["cpu"], document["state"]["settings"]["threads"])
            yield CaseRatio(claim.what, row.get("title", name), ratio, noise, machine)


def _list_gpu_cases(document: Document) -> Iterator[CaseRatio]:
    for name, row in document["rows"].items():
        if "ratio_warm" in row:
            yield CaseRatio("GPU kernels", name, row["ratio_warm"], 0.0, document["device"])


def _list_sealed_cases(document: Document) -> Iterator[CaseRatio]:
    for row in document["rows"].values():
        latest = row.get("again", row)
        ratio, noise = ratio_and_noise(latest)
        if ratio is not None:
            machine = describe_machine(latest["cpu"], latest["threads"])
            yield CaseRatio("sealed networks, float32", latest["name"], ratio, noise, machine)


def _list_order_cases(document: Document) -> Iterator[CaseRatio]:
    for name, row in document["rows"].items():
        machine = describe_machine(row["made"]["cpu"], document["state"]["settings"]["threads"])
        for order, (ratio, noise) in list_ratios(row).items():
            yield CaseRatio("own expressions beside TVM", f"{name} {order}", ratio, noise, machine)


OTHERS: Mapping[str, Callable[[Document], Iterator[CaseRatio]]] = {
    "gpu": _list_gpu_cases,
    "sealed": _list_sealed_cases,
    "orders": _list_order_cases,
}
"""Table without a line among all comparisons → its cases."""
SOURCES = (*CLAIMS, *OTHERS)
"""Tables whose cases are compared."""


def load_reasons(path: Path = REASONS_FILE) -> dict[str, dict[str, str]]:
    """Reads the reasons: comparison → case → reason."""
    reasons: dict[str, dict[str, str]] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return reasons


def worst(folder: Path = results.FOLDER) -> str:
    """Formats the cases of the lowest ratios with their reasons."""
    reasons = load_reasons()
    lines: list[list[object]] = []
    for case in list_lowest(load_compared(folder)):
        reason = reasons.get(case.comparison, {}).get(case.case, "not explained yet")
        ratio = ratio_text(case.ratio, case.noise)
        lines.append([case.comparison, case.case, case.machine, ratio, reason])
    return table(HEADER, lines)
