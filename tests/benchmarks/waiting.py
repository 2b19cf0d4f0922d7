"""Rows of a table that is not whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.results import UNFINISHED_FOLDER


def waiting(name: str, folder: Path) -> dict[str, Any]:
    """Rows that wait, by name."""
    rows: dict[str, Any] = json.loads((folder / UNFINISHED_FOLDER / f"{name}.json").read_text())["rows"]
    return rows
