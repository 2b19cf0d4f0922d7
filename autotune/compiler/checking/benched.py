"""Measurements of a run's executable by `autotune bench`, stored in the run folder for its report."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotune.run_files import BENCH, write_json
from measure.host import describe_host
from targets.manifest import MANIFEST

if TYPE_CHECKING:
    from autotune.compiler.checking.timing import Timing

SCHEMA = "autotune.bench/1"


def keep(timing: Timing, run: Path, executable: Path) -> None:
    """Writes a timing to the run folder; keeps rows of other runtimes there that have the same host and executable.

    Args:
        timing: timing of the executable and other runtimes.
        run: folder of the run.
        executable: folder of the timed executable.
    """
    digest, host = _digest(executable), describe_host()
    rows = {row["title"]: row for row in read_timings(run, executable) if row["host"] == host}
    for runtime, seconds in timing.seconds.items():
        decibels = timing.decibels.get(runtime, math.nan)
        rows[timing.title(runtime)] = {
            "title": timing.title(runtime),
            "ours": timing.is_ours(runtime),
            "seconds": seconds,
            "turns": list(timing.turns.get(runtime, ())),
            "decibels": decibels if math.isfinite(decibels) else None,
            "exact": timing.is_exact(runtime),
            "host": host,
        }
    write_json({"schema": SCHEMA, "executable": digest, "rows": list(rows.values())}, run / BENCH)


def read_timings(run: Path, executable: Path) -> list[dict[str, Any]]:
    """Reads the rows stored for an executable; none if there is no file or the executable has changed since.

    Raises:
        ValueError: `keep` did not write the file.
    """
    file = run / BENCH
    if not file.exists() or not (executable / MANIFEST).exists():
        return []
    try:
        document: Mapping[str, Any] = json.loads(file.read_text())
        if document["schema"] != SCHEMA:
            raise ValueError(f"`schema` must be {SCHEMA!r}, but got schema={document['schema']!r}")
        rows = [dict(row) for row in document["rows"]]
        same = document["executable"] == _digest(executable)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"`{file}` must be what `autotune bench` wrote, but reading it failed: {error}") from None
    return rows if same else []


def _digest(executable: Path) -> str:
    return hashlib.sha256((executable / MANIFEST).read_bytes()).hexdigest()
