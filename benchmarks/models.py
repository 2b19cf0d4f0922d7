"""Scores of cost models by the protocol of docs/evaluation.md, on the validation and the test networks.

`python -m benchmarks.models [--rows validation,test] [--pools FOLDER] [--models A,B] [--seeds N]` teaches every model
the programs to learn from, scores it on both, and writes `models.json` among the results once both rows are there.
Nothing is measured.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from autotune.lab.protocol import POOLS, Pools, Study, study
from autotune.lab.test import test
from benchmarks import tables
from benchmarks.collected import add_options, collect

MODELS = (
    "lightgbm_residual",
    "lightgbm",
    "lightgbm_pairwise",
    "lightgbm_lambdarank",
    "attention",
    "ridge",
    "roofline",
)
"""Cost models of the comparison; the first is the reference."""
NAME = "models"
ROLES = ("validation", "test")


def study_row(study: Study) -> dict[str, Any]:
    """Converts a study to a row of the results, with the processor that its programs were measured on."""
    machines = {part.task.machine for part in study.held_out.parts}
    document = study.to_json()
    if "roofline" in document["models"]:
        document["models"]["roofline"]["programs_per_second"] = None  # it is looked up among the features
    return {**document, "machine": ", ".join(sorted(machines))}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.models", description=__doc__)
    add_options(parser)
    parser.add_argument("--pools", default=POOLS, help="folder; by default those that come along")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args(arguments)
    names = [name for name in options.models.split(",") if name]
    settings = {"models": names, "seeds": options.seeds, "pools": Pools.open(options.pools).registration.fingerprint}

    def say(text: str) -> None:
        sys.stderr.write(f"{text}\n")

    def measure(role: str) -> dict[str, Any]:
        if role == "test":
            return study_row(test(names, options.pools, options.seeds, progress=say))
        return study_row(study(Pools.open(options.pools), role, names, options.seeds, progress=say))

    def summarise(row: Mapping[str, Any]) -> str:
        return ", ".join(f"{name} {model['normalised1'][0]:.3f}" for name, model in row["models"].items())

    return collect(options, NAME, settings, ROLES, measure, summarise, tables.models)


if __name__ == "__main__":
    sys.exit(main())
