"""Figures of timings in turns: seconds, how steady they were, and ratios that say when they are within the noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from autotune.compiler.checking.process import NetworkProcess, time_in_turns
from benchmarks.interleave import geometric_mean
from measure.steadiness import compute_spread, disagreement, half_medians, steady_seconds


def figures(took: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """Computes seconds of each runtime from its turns, and how steady they were.

    Args:
        took: seconds of each turn, in order of time, by runtime.
    """
    halves = {label: half_medians(turns) for label, turns in took.items()}
    return {
        "seconds": {label: steady_seconds(turns) for label, turns in took.items()},
        "spread": {label: compute_spread(turns) for label, turns in took.items()},
        "halves": {label: list(each) for label, each in halves.items() if each[0] == each[0]},
        "unsteady": max(map(disagreement, halves.values())),
    }


def figures_in_turns(processes: Sequence[NetworkProcess], turns: int) -> dict[str, Any]:
    """Times networks in processes of their own, in turns, and returns their figures."""
    return figures({label: timing.latencies for label, timing in time_in_turns(processes, turns).items()})


def milliseconds(row: Mapping[str, Any]) -> str:
    """Formats the seconds of each runtime briefly."""
    return ", ".join(f"{label} {seconds * 1e3:.3f} ms" for label, seconds in row["seconds"].items())


def halves_difference(row: Mapping[str, Any], *labels: str) -> float:
    """Returns the largest difference between the halves of some runtimes' turns, as a share; 0 if it is unknown."""
    halves = row.get("halves", {})
    return max((disagreement(tuple(halves[label])) for label in labels if label in halves), default=0.0)


def is_known(row: Mapping[str, Any], label: str) -> bool:
    """Tells whether the quartiles of a runtime's turns differ by at most their median.

    They may differ by more if most of a call was subtracted as the time of an empty one.
    """
    return bool(row.get("spread", {}).get(label, 0.0) <= 1)


def beside(row: Mapping[str, Any], ours: str, peer: str) -> str:
    """Formats seconds of a peer over ours, both timed in turns."""
    return ratio_text(row["seconds"][peer] / row["seconds"][ours], halves_difference(row, ours, peer))


_MAKERS_WORDS = (("(R)", ""), (" Processor", ""), ("znver", "Zen "), ("emeraldrapids", "Emerald Rapids"))
"""Words of makers and of LLVM → words of the pages."""


def describe_machine(processors: str, threads: int) -> str:
    """Formats processors and the number of threads, with the names of generations."""
    return f"{rename_processors(processors)}, {threads} thread{'s' * (threads > 1)}"


def name_generation(processor: str) -> str:
    """Returns the generation alone, such as `Zen 4`, or the whole name where it has none in parentheses."""
    return rename_processors(processor).rpartition("(")[2].rstrip(")")


def rename_processors(processors: str) -> str:
    """Returns processors with makers' words removed and the generations' names on the pages, such as `Zen 4`."""
    for written, shown in _MAKERS_WORDS:
        processors = processors.replace(written, shown)
    return processors


def ratio_text(ratio: float | None, noise: float = 0.0) -> str:
    """Formats a ratio of times; with ≈ if it is as near to 1 as the two halves of the turns are to each other."""
    if ratio is None:
        return ""
    return f"{'≈' if max(ratio, 1 / ratio) <= 1 + noise else ''}{ratio:.2f}x"


def mean_and_ends(ratios: Sequence[tuple[float, float]]) -> list[object]:
    """Returns cells of a table: geometric mean, lowest and highest of ratios with their noise, and their number."""
    mean = geometric_mean([ratio for ratio, _ in ratios])
    return [f"{mean:.2f}x", *(ratio_text(*end(ratios)) for end in (min, max)), len(ratios)]


def with_processors(
    header: Sequence[str], lines: Sequence[Sequence[object]], rows: Sequence[Mapping[str, Any]]
) -> tuple[list[str], list[list[object]]]:
    """Adds a last column with the processor of each row, if rows are of several processors.

    Args:
        header: header of the table.
        lines: its cells.
        rows: row of each line.
    """
    processors = [row.get("made", {}).get("cpu", "") for row in rows]
    if len(set(processors)) < 2:
        return list(header), [list(line) for line in lines]
    return [*header, "processor"], [[*line, cpu] for line, cpu in zip(lines, processors, strict=True)]
