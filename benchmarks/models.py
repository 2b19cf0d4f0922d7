"""Cost models by the protocol of docs/evaluation.md: on the networks to validate with, and on those to test with.

`python -m benchmarks.models [--roles validation,test] [--pools FOLDER] [--models A,B] [--seeds N]` teaches every model
the programs to learn from, scores it on both, and writes `models.json` among the results. Nothing is measured.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from autotune.lab.test import test
from benchmarks import results, tables
from benchmarks.provenance import commit_of
from costmodel.protocol import POOLS, Pools, Study, study

MODELS = (
    "lightgbm_residual",
    "lightgbm",
    "lightgbm_pairwise",
    "lightgbm_lambdarank",
    "attention",
    "ridge",
    "roofline",
)
"""The others are held against the first."""
ROLES = ("validation", "test")


def row_of(found: Study) -> dict[str, Any]:
    """A study as a row of the results, with the processor that its programs were measured on."""
    machines = {part.task.machine for part in found.held.parts}
    document = found.to_json()
    if "roofline" in document["models"]:
        document["models"]["roofline"]["programs_per_second"] = None  # it is looked up among the features
    return {**document, "machine": ", ".join(sorted(machines)), "commit": commit_of()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.models", description=__doc__)
    parser.add_argument("--pools", default=POOLS, help="folder; by default those that come along")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--roles", default=",".join(ROLES), help="comma-separated: what models are scored on")
    given = parser.parse_args(arguments)
    names = [name for name in given.models.split(",") if name]

    def say(text: str) -> None:
        sys.stderr.write(f"{text}\n")

    if unknown := sorted({*given.roles.split(",")} - {*ROLES}):
        parser.error(f"`--roles` must be of {', '.join(ROLES)}, but got {unknown[0]!r}")
    for role in given.roles.split(","):
        if role == "test":
            row = row_of(test(names, given.pools, given.seeds, progress=say))
        else:
            row = row_of(study(Pools.open(given.pools), "validation", names, given.seeds, progress=say))
        path = results.save("models", {"rows": {role: row}})
    saved = results.load("models", path.parent)
    assert saved is not None
    sys.stdout.write(tables.TABLES["models"](saved) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
