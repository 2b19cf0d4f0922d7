"""Result files of benchmarks: JSON documents with the host they were made on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from measure.host import describe_host, noise_of_host

FOLDER = Path(__file__).resolve().parent / "results"


def save(name: str, document: Mapping[str, Any], folder: Path = FOLDER) -> Path:
    """Writes `folder/name.json`; rows measured before and not now are kept where the host is the same."""
    host = describe_host()
    path = folder / f"{name}.json"
    rows = dict(document["rows"])
    if path.exists():
        before = json.loads(path.read_text())
        if before["host"] == host:
            rows = {**before["rows"], **rows}
    folder.mkdir(parents=True, exist_ok=True)
    whole = {"host": host, "noise": noise_of_host(), **document, "rows": rows}
    path.write_text(json.dumps(whole, indent=1, ensure_ascii=False) + "\n")
    return path


def load(name: str, folder: Path = FOLDER) -> dict[str, Any] | None:
    """The document, or None where it has not been made."""
    path = folder / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None
