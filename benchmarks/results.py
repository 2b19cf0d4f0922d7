"""Result files of benchmarks: JSON documents with the host they were made on."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.provenance import MEASURED_PATHS, is_whole, moment, read_commit
from measure.host import describe_host

DOCS = Path(__file__).resolve().parents[1] / "docs"
"""Pages, and the pictures on them."""

FOLDER = Path(__file__).resolve().parent / "results"
UNFINISHED_FOLDER = "unfinished"
"""Folder beside the results, of tables that lack rows."""


def save(
    name: str, document: Mapping[str, Any], folder: Path = FOLDER, measured_paths: Sequence[str] = MEASURED_PATHS
) -> Path:
    """Writes `folder/name.json`, each row with its provenance; other rows of the same host are kept.

    Tables that one machine measures without a break use `benchmarks.collected`.

    Args:
        name: name of the file.
        document: document with `rows`.
        folder: folder of result files.
        measured_paths: paths that the rows measure; the newest commit of these is theirs.
    """
    host = describe_host()
    path = folder / f"{name}.json"
    provenance = {
        "commit": read_commit(measured_paths=measured_paths),
        "cpu": host["cpu"],
        "cores": host["cores"],
        **moment(),
    }
    rows = {key: {"made": provenance, **row} for key, row in document["rows"].items()}
    if path.exists():
        before = json.loads(path.read_text())
        if before["host"] == host:
            rows = {**before["rows"], **rows}
    folder.mkdir(parents=True, exist_ok=True)
    whole = {"host": host, "noise": noise_of_host(), **document, "rows": rows}
    path.write_text(json.dumps(whole, indent=1, ensure_ascii=False) + "\n")
    return path


def load(name: str, folder: Path = FOLDER) -> dict[str, Any] | None:
    """Reads the document; None if there is no file."""
    path = folder / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def load_all(names: Sequence[str], folder: Path = FOLDER) -> dict[str, dict[str, Any]]:
    """Reads the documents of some names, and those of second processors, `FOLDER/NAME`, in alphabetical order.

    A name without a file is left out.
    """
    others = sorted(path.name for path in folder.iterdir() if path.is_dir() and path.name != UNFINISHED_FOLDER)
    every = [each for name in names for each in (name, *(f"{other}/{name}" for other in others))]
    return {name: document for name in every if (document := load(name, folder)) is not None}


def noise_of_host(samples: int = 200) -> float:
    """Measures the relative noise of timings on this machine now: (p90 - p10) / median of one short fixed kernel.

    The kernel is arithmetic on 16 KiB, about 100 microseconds: only the clock rate and other users of the core can
    change its time.
    """
    values = np.full(4096, 1.0, np.float32)  # (elements,)
    seconds = np.empty(samples)  # (samples,)
    for sample in range(-samples // 10, samples):  # those below 0 warm the core up
        start = time.perf_counter_ns()
        for _ in range(100):
            np.multiply(values, values, out=values)
        if sample >= 0:
            seconds[sample] = (time.perf_counter_ns() - start) * 1e-9
    low, middle, high = np.quantile(seconds, (0.1, 0.5, 0.9))
    return float((high - low) / middle)


def is_done(row: Mapping[str, Any] | None, same: Mapping[str, Any]) -> bool:
    """Tells whether there is a row already, so that it need not be measured again.

    Args:
        row: present row, or None.
        same: required values of the row: options, processor, and, where only rows of one commit count, `commit`. That
            commit must have no changes, as the next run may have others.
    """
    if row is None or ("commit" in same and not is_whole(same["commit"])):
        return False
    return all(name in row and row[name] == value for name, value in same.items())
