"""The tables of `benchmarks.gpu` and of `benchmarks.gpu.network`."""

from __future__ import annotations

from typing import Any

from benchmarks.gpu.rows import TARGETS
from benchmarks.markdown import table

STATES, KEYS = ("warm", "cold"), ("registers", "spill_bytes")


def beside_torch(document: dict[str, Any]) -> str:
    """Formats each workload's time and PyTorch's best, with warm and cold caches, and geometric means by kind."""
    said = f"On {document['device']} ({document['arch']}), {document['date']}; microseconds."
    said += f" {document['note']}" if "note" in document else ""
    rows = document["rows"]
    times = [f"{what}, {state}" for state in STATES for what in ("ours", "PyTorch", "ratio")]
    single = table(
        ["workload", *times, "registers", "spilled"],
        [
            [name, *_cells(row, "warm"), *_cells(row, "cold"), *(f"{row['metrics'][key]:.0f}" for key in KEYS)]
            if "warm" in row
            else [name, row["problem"], *[""] * (len(times) + 1)]
            for name, row in rows.items()
        ],
    )
    return f"{said}\n\n{single}\n\n{kinds(document)}"


def kinds(document: dict[str, Any]) -> str:
    """Returns the geometric means of each kind of workload, and the requirements on them."""
    rows, means = document["rows"], document["means"]
    return table(
        ["kind", "rows", *(f"ratio, {state}" for state in STATES), "target"],
        [
            [
                kind,
                sum(row["kind"] == kind and "warm" in row for row in rows.values()),
                *(f"{means[key]:.2f}x" if (key := f"{kind}_{state}") in means else "" for state in STATES),
                f"{TARGETS[kind]:.1f}x",
            ]
            for kind in dict.fromkeys(row["kind"] for row in rows.values())
        ],
    )


def _cells(row: dict[str, Any], state: str) -> list[str]:
    """Formats our time, PyTorch's best, and the ratio; nothing if PyTorch's is unknown."""
    if state not in row:
        return ["", "", ""]
    ours, best = row[state]["ours"], min(s for name, s in row[state].items() if name != "ours")
    return [f"{ours * 1e6:.1f}", f"{best * 1e6:.1f}", f"{row[f'ratio_{state}']:.2f}x"]


def network_beside_torch(document: dict[str, Any]) -> str:
    """Formats milliseconds of an inference in turns with each of PyTorch's ways, and ours beside each."""
    (row,) = document["rows"].values()
    said = f"On {document['device']} ({document['arch']}), {row['made']['date']}; milliseconds of a CUDA graph. "
    said += f"{row['trials']} trials of all layers; `autotune run` took {row['run_seconds']:.0f} s, and no output is "
    said += f"further than {row['max_error']:.1e} from the reference. PyTorch {row['torch']}."
    return f"{said}\n\n{network_lines(document)}"


def network_lines(document: dict[str, Any]) -> str:
    """Returns the table of `network_beside_torch`."""
    (row,) = document["rows"].values()
    rows = [
        [name.replace("_", ", ", 1).replace("_", " "), *_milliseconds(found)] for name, found in row["beside"].items()
    ]
    return table(["PyTorch", "ours", "spread", "PyTorch's", "spread", "ratio"], rows)


def _milliseconds(row: dict[str, Any]) -> list[str]:
    """Formats our time, PyTorch's, each with the spread of its turns, and the ratio; or why they are missing."""
    if "problem" in row:
        return [row["problem"], *[""] * 4]
    cells = []
    for who in ("ours", "torch"):
        turns, middle = row[who]["turns"], row[who]["seconds"]
        cells += [f"{middle * 1e3:.3f}", f"{(max(turns) - min(turns)) / middle * 100:.1f} %"]
    return [*cells, f"{row['torch']['seconds'] / row['ours']['seconds']:.2f}x"]
