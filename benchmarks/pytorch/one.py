"""Comparison of one model with PyTorch's own ways of running it: `python -m benchmarks.pytorch.one REQUEST`.

Facts of each stage are written at once, so they remain if a later stage crashes or takes too long.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from autotune.compiler.checking.process import RuntimeFailure
from autotune.compiler.checking.runtimes import Array
from benchmarks.figures import figures_in_turns
from benchmarks.pytorch.runtime import EAGER, ModelProcess
from benchmarks.survey.process import Facts
from measure.hostlock import alone


def main() -> None:
    """Compiles and times the model of the request."""
    request = json.loads(sys.argv[1])
    facts = Facts(Path(request["facts"]))
    with facts.failures():
        take(request, facts)


def take(request: Mapping[str, Any], facts: Facts) -> None:
    """Runs all stages: each runtime from an empty cache, outputs, turns, and each compiler from its filled cache.

    Args:
        request: `model`, `seed`, `threads`, `turns`, `runtimes` with `eager` first, `folder` for files.
        facts: file for `missing`, `errors`, `cold_seconds`, `warm_seconds` and the figures of the turns, each by
            runtime.
    """
    missing: dict[str, str] = {}
    cold: dict[str, float] = {}
    warm: dict[str, float] = {}
    answers: dict[str, Array] = {}
    with ExitStack() as stack:
        processes = []
        for runtime in request["runtimes"]:
            facts.begin(f"compile by {runtime}")
            try:
                process = stack.enter_context(_open_process(runtime, request, "cold"))
                answers[runtime], cold[runtime] = _first(runtime, process, request, "cold")
            except RuntimeFailure as error:
                if runtime == EAGER:  # there is nothing to compare with
                    raise
                missing[runtime] = str(error)
                continue
            processes.append(process)
        cold.pop(EAGER)
        facts.add(missing=missing, cold_seconds=cold, errors=compute_errors(answers))
        facts.begin("timing")
        if request["turns"]:
            with alone():
                facts.add(**figures_in_turns(processes, request["turns"]))
    for runtime in cold:
        facts.begin(f"compile by {runtime} once more")
        with _open_process(runtime, request, "warm") as process:
            warm[runtime] = _first(runtime, process, request, "warm")[1]
    facts.add(warm_seconds=warm)
    facts.begin("")


def compute_errors(answers: Mapping[str, Array]) -> dict[str, float | None]:
    """Computes each runtime's largest difference from eager PyTorch over the largest output; None if not finite."""
    wanted = answers[EAGER].astype(np.float64)
    largest = float(np.abs(wanted).max())
    errors: dict[str, float | None] = {}
    for runtime, output in answers.items():
        if runtime != EAGER:
            error = float(np.abs(output.astype(np.float64) - wanted).max()) / largest
            errors[runtime] = error if np.isfinite(error) else None
    return errors


def _open_process(runtime: str, request: Mapping[str, Any], run: str) -> ModelProcess:
    """Opens a process of a runtime; both runs of one share a cache, which is empty before the first."""
    facts = {
        "model": json.dumps(request["model"]),
        "seed": str(request["seed"]),
        "cache": str(Path(request["folder"]) / f"cache-{runtime}"),
        "notes": str(_notes(runtime, request, run)),
    }
    return ModelProcess(runtime, request["threads"], **facts)


def _first(runtime: str, process: ModelProcess, request: Mapping[str, Any], run: str) -> tuple[Array, float]:
    """Runs a process's first inference, which compiles; returns its output and seconds."""
    output = process.infer({})["0"]
    return output, Facts(_notes(runtime, request, run)).all()["first_seconds"]


def _notes(runtime: str, request: Mapping[str, Any], run: str) -> Path:
    return Path(request["folder"]) / f"{run}-{runtime}.jsonl"


if __name__ == "__main__":
    main()
