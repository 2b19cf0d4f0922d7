"""Our generated kernels against PyTorch (oneDNN, Inductor), ONNX Runtime and OpenVINO, an operator at a time, in turns.

`python -m benchmarks.operators [--gradients] [--rows NAME,...] [--trials 128] [--minutes M]` prints the table, and
writes `benchmarks/results/operators.json` once all rows of it are there; the same command resumes. With `--gradients`
these are gradients of operators, in `gradients.json`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from benchmarks.collected import add_options, add_timing_options, collect
from benchmarks.figures import figures, milliseconds
from benchmarks.gradients import GRADIENT_ROWS
from benchmarks.interleave import measure_turns
from benchmarks.operators_table import operators
from benchmarks.peers.base import PeerProcess, Refusal
from benchmarks.rows import ROWS, Row
from benchmarks.tuning import SHIPPED_KNOWLEDGE, tune_workload
from search_space.workloads import Workload
from targets import registry

NAME, GRADIENTS = "operators", "gradients"
PEERS: dict[str, tuple[str, dict[str, Any]]] = {
    "torch": ("benchmarks.peers.torch_peer", {}),
    "inductor": ("benchmarks.peers.inductor_peer", {}),
    "onnxruntime": ("benchmarks.peers.ort_peer", {}),
    "onnxruntime_blocked": ("benchmarks.peers.ort_peer", {"blocked": True}),
    "openvino": ("benchmarks.peers.openvino_peer", {}),
}
"""Name → program and its options; a peer that has several ways takes the one that is fastest here."""


def compare(row: Row, options: argparse.Namespace) -> dict[str, Any]:
    """Tunes one row and times it beside the peers; returns seconds by peer, and facts to read them."""
    workload = row.make()
    counted = workload if row.forward is None else row.forward()
    figures_of_row: dict[str, Any] = {"title": row.title, "class": row.kind, "flops": counted.flops}
    figures_of_row["peak_flops"] = registry.get("cpu").hardware.peak_flops
    figures_of_row["constant_weight"] = any(spec.constant for spec in workload.inputs)
    result = tune_workload(workload, options.trials, options.seed, options.threads)
    figures_of_row["tuning"] = result.took
    informed = tune_workload(workload, options.trials, options.seed, options.threads, SHIPPED_KNOWLEDGE)
    figures_of_row["tuning_shipped"] = informed.took
    own = {"ours": result.generated_options, "shipped": informed.generated_options} | (
        {"library": result.library} if result.library else {}
    )
    modules = {**dict.fromkeys(own, "benchmarks.peers.ours"), **{name: module for name, (module, _) in PEERS.items()}}
    settings = {**own, **{name: extra for name, (_, extra) in PEERS.items()}}
    settings = {name: {**chosen, **row.options} for name, chosen in settings.items()}
    with ExitStack() as stack:
        processes = {name: stack.enter_context(PeerProcess(module)) for name, module in modules.items()}
        running, figures_of_row["peers"] = prepare_processes(processes, workload, settings, options.threads)
        return {**figures_of_row, **figures(measure_turns(running, options.repeat))}


def prepare_processes(
    processes: Mapping[str, PeerProcess], workload: Workload, settings: Mapping[str, Mapping[str, Any]], threads: int
) -> tuple[dict[str, PeerProcess], dict[str, Any]]:
    """Selects the processes that have the operator, ready to take turns, and returns their self-descriptions.

    Raises:
        PeerError: our process has not, or a process fails without an answer.
    """
    running, said = {}, {}
    for name, process in processes.items():
        try:
            said[name] = process.prepare(workload, threads, **settings[name])
            running[name] = process
        except Refusal as error:
            if process.module == "benchmarks.peers.ours":
                raise
            said[name] = {"error": str(error)}
    return running, said


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses the options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.operators", description=__doc__)
    add_options(parser)
    add_timing_options(parser, 128)
    parser.add_argument("--gradients", action="store_true", help="gradients of operators in place of operators")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures the rows that are missing."""
    options = parse(arguments)
    settings = {name: getattr(options, name) for name in ("threads", "trials", "repeat", "seed")}
    rows_by_name = {row.name: row for row in (GRADIENT_ROWS if options.gradients else ROWS)}

    def measure(name: str) -> dict[str, Any]:
        return compare(rows_by_name[name], options)

    name = GRADIENTS if options.gradients else NAME
    return collect(options, name, settings, list(rows_by_name), measure, milliseconds, operators)


if __name__ == "__main__":
    sys.exit(main())
