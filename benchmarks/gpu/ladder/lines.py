"""Lines of a file of JSON, each written at once, so that a later crash does not lose it."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

FILE = "ladder.jsonl"


def append(folder: Path, name: str, status: str, start: float, **facts: Any) -> dict[str, Any]:
    """Adds a line: the trial, its result, its seconds, and other facts."""
    line = {"rung": name, "status": status, "took": round(time.perf_counter() - start, 3), **facts}
    data = (json.dumps(line, default=str) + "\n").encode()
    handle = os.open(folder / FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(handle, data)
        os.fsync(handle)
    finally:
        os.close(handle)
    return line


def read(folder: Path) -> list[dict[str, Any]]:
    """Reads all lines."""
    path = folder / FILE
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
