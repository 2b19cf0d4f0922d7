"""Figures of what took turns: seconds, how steady they were, and ratios that say when they are within the noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from autotune.compiler.checking.process import NetworkProcess, time_in_turns
from benchmarks.interleave import geometric_mean
from measure.steadiness import disagreement, halves_of, spread_of, steady_seconds


def figures(took: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """Seconds of each runtime by those of its turns, and how steady they were.

    Args:
        took: seconds of each turn, in order of time, by runtime.
    """
    halves = {label: halves_of(turns) for label, turns in took.items()}
    return {
        "seconds": {label: steady_seconds(turns) for label, turns in took.items()},
        "spread": {label: spread_of(turns) for label, turns in took.items()},
        "halves": {label: list(each) for label, each in halves.items() if each[0] == each[0]},
        "unsteady": max(map(disagreement, halves.values())),
    }


def figures_in_turns(processes: Sequence[NetworkProcess], turns: int) -> dict[str, Any]:
    """Figures of networks in processes of their own, which take turns."""
    return figures({label: timing.latencies for label, timing in time_in_turns(processes, turns).items()})


def milliseconds(row: Mapping[str, Any]) -> str:
    """What took turns, briefly."""
    return ", ".join(f"{label} {seconds * 1e3:.3f} ms" for label, seconds in row["seconds"].items())


def noise_of(row: Mapping[str, Any], *labels: str) -> float:
    """By how much the two halves of the turns of some runtimes differ at most, as a share; 0 where it is not known."""
    halves = row.get("halves", {})
    return max((disagreement(tuple(halves[label])) for label in labels if label in halves), default=0.0)


def is_known(row: Mapping[str, Any], label: str) -> bool:
    """Whether the quartiles of a runtime's turns differ by no more than their median.

    They may where most of a call was taken off as that of an empty one.
    """
    return bool(row.get("spread", {}).get(label, 0.0) <= 1)


def beside(row: Mapping[str, Any], ours: str, peer: str) -> str:
    """Seconds of a peer over ours, both of which took turns, as text."""
    return ratio_text(row["seconds"][peer] / row["seconds"][ours], noise_of(row, ours, peer))


def ratio_text(ratio: float | None, noise: float = 0.0) -> str:
    """A ratio of times; with ≈ before it where it is as near to 1 as the two halves of the turns are to each other."""
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
    """A table with a last column of the processors that its rows are of, where those are several.

    Args:
        header: of the table.
        lines: its cells.
        rows: of each line.
    """
    processors = [row.get("made", {}).get("cpu", "") for row in rows]
    if len(set(processors)) < 2:
        return list(header), [list(line) for line in lines]
    return [*header, "processor"], [[*line, cpu] for line, cpu in zip(lines, processors, strict=True)]
