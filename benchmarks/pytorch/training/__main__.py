"""Training by us without a trial, through `torch.compile` and as one executable, beside Inductor and eager PyTorch.

`python -m benchmarks.pytorch.training [--only NAME,...] [--minutes M]` trains small networks of plain PyTorch with
random weights. It runs each in processes of their own, prints the table, and writes `benchmarks/results/training.json`
once all rows are there.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from autotune.compiler.checking.runtimes import Array
from autotune.units import latency
from benchmarks import results
from benchmarks.collected import collect
from benchmarks.figures import figures_in_turns
from benchmarks.pytorch.runtime import EAGER, INDUCTOR, OURS
from benchmarks.pytorch.training.networks import EXAMPLES
from benchmarks.pytorch.training.runtime import EXACT, TrainingProcess
from benchmarks.pytorch.training.table import HEADS, STEP, ratio_to_fastest, training
from benchmarks.survey.process import Facts
from measure.host import allowed_cores
from measure.hostlock import alone

NAME = "training"
RUNTIME_NAMES = (EAGER, INDUCTOR, OURS, STEP)


def measure_network(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Measures the row of one network: gradients, seconds of the first step, turns, and peak memory."""
    row: dict[str, Any] = {"name": name, "errors": {}, "first_seconds": {}, "peak_bytes": {}}
    with tempfile.TemporaryDirectory(prefix="autotune-training-") as place, ExitStack() as stack:
        notes = {runtime: Facts(Path(place) / f"{runtime}.jsonl") for runtime in (EXACT, *RUNTIME_NAMES)}

        def open_process(runtime: str) -> TrainingProcess:
            facts = {"network": name, "seed": str(options.seed), "cache": f"{place}/cache-{runtime}"}
            return TrainingProcess(runtime, options.threads, **facts, notes=f"{place}/{runtime}.jsonl")

        with open_process(EXACT) as process:
            reference = process.infer({})
        processes = [stack.enter_context(open_process(runtime)) for runtime in RUNTIME_NAMES]
        for process in processes:
            row["errors"][process.runtime] = compute_error(process.infer({}), reference)
        with alone():
            row |= figures_in_turns(processes, options.turns)
        for runtime in RUNTIME_NAMES:
            row["first_seconds"][runtime] = notes[runtime].all()["first_seconds"]
            row["peak_bytes"][runtime] = notes[runtime].all()["peak_bytes"]
    return row


def compute_error(gradients: Mapping[str, Array], reference: Mapping[str, Array]) -> float:
    """Computes the root of the mean square of all gradients' errors, as a share of that of the gradients."""
    pairs = [(np.asarray(gradients[name], np.float64), reference[name]) for name in reference]
    wrong = sum(float(np.square(a - b).sum()) for a, b in pairs)
    return float((wrong / sum(float(np.square(b).sum()) for _, b in pairs)) ** 0.5)


def format_line(row: Mapping[str, Any]) -> str:
    """Formats a row in a line."""
    parts = [
        f"{HEADS[runtime]} {latency(row['seconds'][runtime])} ({row['errors'][runtime]:.0e})"
        for runtime in RUNTIME_NAMES
    ]
    return f"{', '.join(parts)}, {ratio_to_fastest(row, STEP)[0]:.2f}x and {ratio_to_fastest(row)[0]:.2f}x"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures the networks and prints the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pytorch.training", description=__doc__)
    parser.add_argument("--only", dest="rows", metavar="NAMES", help=f"comma-separated: {', '.join(EXAMPLES)}")
    parser.add_argument("--turns", type=int, default=10, help="that each runtime takes")
    parser.add_argument("--threads", type=int, default=len(allowed_cores()), help="all cores by default")
    parser.add_argument("--seed", type=int, default=0, help="of weights and inputs")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="end after so long; resume later")
    parser.add_argument("--results", type=Path, default=results.FOLDER, help="folder of training.json")
    options = parser.parse_args(arguments)
    settings = {"threads": options.threads, "seed": options.seed, "turns": options.turns}
    return collect(
        options, NAME, settings, list(EXAMPLES), lambda name: measure_network(name, options), format_line, training
    )


if __name__ == "__main__":
    sys.exit(main())
