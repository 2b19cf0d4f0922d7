"""The first table of docs/benchmarks.md: every claim of a speed beside peers in one line, from the result files.

A line covers all rows of a table, slower ones included. Result files without provenance have no line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import networks_table, operators_table, results, tvm_table
from benchmarks.collected import check
from benchmarks.figures import halves_difference, ratio_text, rename_processors
from benchmarks.interleave import geometric_mean
from benchmarks.markdown import table
from benchmarks.pytorch import table as pytorch_table
from benchmarks.pytorch.runtime import OURS, TITLES
from benchmarks.stacks import STACKS

Document = Mapping[str, Any]
Row = Mapping[str, Any]
Ratio = tuple[float | None, float]
"""Seconds of the fastest peer over ours, None where either was not timed, and the noise of the two."""

HEADER = ["what", "processor", "threads", "trials", "speed-up", "held out", "rows", "fastest of", "noise"]


@dataclass(frozen=True)
class Claim:
    """A line of the table.

    Attributes:
        what: compared quantity.
        peers: peers of the comparison.
        ratio: ratio of a row.
        of: condition for a row to count.
        trials: trials of the row; None: the number in the table's settings.
    """

    what: str
    peers: Sequence[str]
    ratio: Callable[[Row], Ratio]
    of: Callable[[Row], bool] = lambda row: True
    trials: int | None = None


def _networks(document: Document) -> Iterator[Claim]:
    wide, narrow = networks_table.list_peers(document)
    yield Claim(
        "networks, float32",
        [networks_table.PEERS[peer].partition(",")[0] for peer in wide],
        lambda row: networks_table.ratio(row, networks_table.OURS, wide),
    )
    if any(networks_table.NARROW in row["seconds"] for row in document["rows"].values()):
        yield Claim(
            "networks, bfloat16",
            ["these", *(networks_table.NARROW_PEERS[peer] for peer in narrow)],
            lambda row: networks_table.ratio(row, networks_table.NARROW, [*wide, *narrow]),
        )


def _pytorch(document: Document) -> Iterator[Claim]:
    timed = {name for row in document["rows"].values() for name in row.get("seconds", {})}
    peers = [title.replace(",", "") for name, title in TITLES.items() if name in timed and name != OURS]
    yield Claim("models by `torch.compile`", peers, pytorch_table.ratio_to_best)


def _int8(document: Document) -> Iterator[Claim]:
    def ratio(row: Row) -> Ratio:
        return networks_table.ratio(row, "autotune", [label for label in row["seconds"] if label != "autotune"])

    peers = ["ONNX Runtime", "OpenVINO", "OpenVINO as installed"]
    yield Claim("networks, int8", peers, ratio, lambda row: row["title"] not in STACKS)
    yield Claim("stacks of eight layers, int8", peers, ratio, lambda row: row["title"] in STACKS)


def _operators(document: Document) -> Iterator[Claim]:
    peers = ["oneDNN", "Inductor", "ONNX Runtime", "its blocked layout", "OpenVINO"]
    yield Claim("operators, float32", peers, operators_table.ratio_to_best)


def _gradients(document: Document) -> Iterator[Claim]:
    yield Claim("gradients of operators, float32", ["oneDNN", "Inductor"], operators_table.ratio_to_best)


def _tvm(document: Document) -> Iterator[Claim]:
    for trials in tvm_table.trial_counts(document["rows"].values()):
        yield Claim("operators, float32", ["TVM"], lambda row, n=trials: tvm_table.ratio(row, n), trials=trials)


CLAIMS: dict[str, Callable[[Document], Iterator[Claim]]] = {
    **{f"networks_{budget}_{threads}": _networks for budget, threads in (("0", 2), ("0", 1), ("10", 2), ("1000", 2))},
    "pytorch": _pytorch,
    "quantized_networks": _int8,
    "operators": _operators,
    "gradients": _gradients,
    "tvm": _tvm,
    "tvm_long": _tvm,
}
"""Table → its claims."""


def headline(folder: Path = results.FOLDER) -> str:
    """Formats the table of all results in a folder and in the folders of second processors in it."""
    lines: list[list[object]] = []
    for name, document in load_claimed(folder).items():
        claims = CLAIMS[name.rpartition("/")[2]](document)
        lines += [line for claim in claims if (line := _line(claim, document)) is not None]
    return table(HEADER, lines)


def load_claimed(folder: Path) -> dict[str, Document]:
    """Reads the result files that have claims, those of second processors too.

    Raises:
        MixedTable: a file has rows that must not be in one table.
    """
    documents = {name: each for name, each in results.load_all(list(CLAIMS), folder).items() if "state" in each}
    for name, document in documents.items():
        check(name, document)
    return documents


def _format_trials(claim: Claim, document: Document) -> str:
    """Formats the trials of a claim's rows."""
    settings = document["state"]["settings"]
    trials = settings.get("trials", 0) if claim.trials is None else claim.trials
    return (f"{trials:,}" if trials else "none") + (" a kernel" if settings.get("each_task") else "")


def _line(claim: Claim, document: Document) -> list[object] | None:
    rows = [row for row in document["rows"].values() if claim.of(row)]
    ratios_of_rows = [(ratio, noise, row) for row in rows for ratio, noise in [claim.ratio(row)] if ratio is not None]
    if not ratios_of_rows:
        return None
    ratios = [ratio for ratio, _, _ in ratios_of_rows]
    ends = [ratio_text(*end(ratios_of_rows, key=itemgetter(0))[:2]) for end in (min, max)]
    held_out = [ratio for ratio, _, row in ratios_of_rows if row.get("held_out")]
    apart = [halves_difference(row, *row["halves"]) for _, _, row in ratios_of_rows]
    return [
        claim.what,
        rename_processors(" and ".join(dict.fromkeys(row["made"]["cpu"] for row in rows))),
        document["state"]["settings"]["threads"],
        _format_trials(claim, document),
        f"{geometric_mean(ratios):.2f}x ({' to '.join(ends)})",
        f"{geometric_mean(held_out):.2f}x" if held_out else "",
        len(ratios_of_rows),
        ", ".join(claim.peers),
        f"{median(apart) * 100:.0f} %, at most {max(apart) * 100:.0f} %",
    ]
