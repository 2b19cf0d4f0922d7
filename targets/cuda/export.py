"""Exported kernels: a cubin, its source, and how to launch it, for programs that load cubins themselves."""

from __future__ import annotations

import json
from pathlib import Path

from targets.base import Module


def export(module: Module, folder: str | Path, name: str) -> list[str]:
    """Writes `name`.cubin, `name`.cu and `name`.json; the files' names."""
    facts = {key: value for key, value in module.metadata.items() if key != "source"}
    arrays = {
        "parameters": [p.plain() for p in module.parameters],
        "outputs": module.outputs,
        "sources": [p.plain() for p in module.sources],
    }
    files = {
        f"{name}.cubin": module.object_code,
        f"{name}.cu": module.metadata["source"].encode(),
        f"{name}.json": (json.dumps({**facts, **arrays}, indent=2) + "\n").encode(),
    }
    for file, data in files.items():
        (Path(folder) / file).write_bytes(data)
    return list(files)
