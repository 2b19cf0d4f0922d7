"""A small space and its results in the community's formats, T1 and T4."""

from __future__ import annotations

import gzip
import itertools
import json
import math
from pathlib import Path
from typing import Any

BLOCKS, TILES, MEMORIES = (32, 64, 128), (1, 2, 3, 4), ("shared", "global")
SPACE = {
    "General": {"BenchmarkName": "made"},
    "ConfigurationSpace": {
        "TuningParameters": [
            {"Name": "block", "Type": "int", "Values": repr(list(BLOCKS))},
            {"Name": "tile", "Type": "int", "Values": repr(list(TILES))},
            {"Name": "memory", "Type": "string", "Values": repr(list(MEMORIES))},
        ],
        "Conditions": [{"Expression": "block * tile <= 256", "Parameters": ["block", "tile"]}],
    },
}


def milliseconds(block: int, tile: int, memory: str) -> float:
    return 1.0 + abs(math.log2(block / 64)) + abs(tile - 3) / 2 + (memory == "global")


def results() -> list[dict[str, Any]]:
    found = []
    for block, tile, memory in itertools.product(BLOCKS, TILES, MEMORIES):
        if block * tile > 256:
            continue
        failed = (block, tile, memory) == (128, 1, "shared")
        took = milliseconds(block, tile, memory)
        found.append(
            {
                "configuration": {"block": block, "tile": tile, "memory": memory},
                "times": {
                    "compilation": 100.0,
                    "framework": 5.0,
                    "search_algorithm": 0,
                    "validation": 20.0,
                    "runtimes": [] if failed else [took, took * 1.5],
                },
                "invalidity": "compile" if failed else "correct",
                "measurements": [] if failed else [{"name": "time", "value": took * 1.25, "unit": "ms"}],
                "objectives": ["time"],
            }
        )
    return found


def files(folder: Path, measurements: list[dict[str, Any]] | None = None) -> tuple[Path, Path]:
    """T4, compressed, and T1."""
    document = {
        "metadata": {"timeunit": "miliseconds"},
        "schema_version": "1.0.0",
        "results": measurements or results(),
    }
    (folder / "made_T4.json.gz").write_bytes(gzip.compress(json.dumps(document).encode()))
    (folder / "made.T1.json").write_text(json.dumps(SPACE))
    return folder / "made_T4.json.gz", folder / "made.T1.json"
