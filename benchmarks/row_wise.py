"""Comparison of row-wise kernels, with and without trials, with PyTorch, ONNX Runtime and OpenVINO, by length.

`python -m benchmarks.row_wise [--rows "softmax 32",...] [--lengths 32,...] [--trials 64] [--repeat 20]` has ours
without trials, ours with them and all peers take turns, prints the table, and writes `benchmarks/results/row_wise.json`
once all rows are there. With `--trials 0` nothing is tuned. Of every length there are as many rows as make 2^17
elements.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from benchmarks.collected import add_options, add_timing_options, collect
from benchmarks.figures import figures
from benchmarks.interleave import measure_turns
from benchmarks.operators import prepare_processes
from benchmarks.peers.base import PeerProcess
from benchmarks.row_kinds import KINDS
from benchmarks.row_wise_table import PEERS, row_wise

NAME = "row_wise"
ELEMENTS = 1 << 17
"""Elements of each array: as many rows of a length as fit."""
LENGTHS = (32, 50, 128, 256, 512, 1000, 2048, 4097)
"""Lengths of rows: of attention, of hidden layers and of classes, and odd ones, which leave a tail of a vector."""


PAUSE, WARM = 0.06, 0.06
"""Seconds between turns and before them: kernels are so short that the rows of a turn soon find everything in place."""


def processes(stack: ExitStack, trials: int) -> dict[str, PeerProcess]:
    """Opens our runtimes and the peers, each in a process that serves all rows."""
    modules = dict.fromkeys(("untimed", *(["tuned"] if trials else [])), "benchmarks.peers.ours")
    modules |= dict.fromkeys(PEERS, "benchmarks.peers.row_wise_peer")
    return {name: stack.enter_context(PeerProcess(module)) for name, module in modules.items()}


def compare(kind: str, length: int, running: Mapping[str, PeerProcess], options: argparse.Namespace) -> dict[str, Any]:
    """Times our runtimes and every peer in turns, and returns the figures with the peers' facts."""
    from autotune.config import Measure
    from autotune.tuner.task import Task
    from autotune.tuner.tuner import settings_for
    from autotune.tuner.untimed import select_by_roofline
    from benchmarks.tuning import tune_workload
    from targets import registry

    rows = max(1, ELEMENTS // length)
    workload = KINDS[kind](rows, length)
    settings = settings_for(registry.get("cpu"), 1, options.seed, measure=Measure(threads=options.threads))
    first = select_by_roofline(Task(NAME, workload), settings)
    settings_of_peers: dict[str, dict[str, Any]] = {
        "untimed": {"algorithm": first.algorithm, "trace": first.trace.to_json(), "target": "cpu"}
    }
    if options.trials:
        settings_of_peers["tuned"] = tune_workload(
            workload, options.trials, options.seed, options.threads
        ).generated_options
    settings_of_peers |= {runtime: {"runtime": runtime, "kind": kind} for runtime in PEERS}
    able, said = prepare_processes(running, workload, settings_of_peers, options.threads)
    took = measure_turns(able, options.repeat, pause=PAUSE, warm_seconds=WARM)
    return {"kind": kind, "rows": rows, "length": length, "peers": said, **figures(took)}


def _lengths(text: str) -> tuple[int, ...]:
    try:
        lengths = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be numbers with commas between them, but got {text!r}") from None
    if wrong := [n for n in lengths if not 1 <= n <= ELEMENTS]:
        raise argparse.ArgumentTypeError(f"must be 1 to {ELEMENTS}, but got {wrong[0]}")
    return lengths


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses the options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.row_wise", description=__doc__.partition("\n")[0])
    add_options(parser)
    parser.add_argument("--lengths", type=_lengths, default=LENGTHS, help="comma-separated lengths of rows")
    add_timing_options(parser, 64, "measured candidates a row; 0: none is tuned")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the comparison."""
    options = parse(arguments)
    every = {f"{kind} {length}": (kind, length) for kind in KINDS for length in options.lengths}
    settings = {name: getattr(options, name) for name in ("threads", "trials", "repeat", "seed")}

    def summarise(row: Mapping[str, Any]) -> str:
        return ", ".join(f"{who} {seconds * 1e6:.1f} µs" for who, seconds in row["seconds"].items())

    with ExitStack() as stack:
        running: dict[str, PeerProcess] = {}

        def measure(name: str) -> dict[str, Any]:
            if not running:
                running.update(processes(stack, options.trials))
            return compare(*every[name], running, options)

        return collect(options, NAME, settings, list(every), measure, summarise, row_wise)


if __name__ == "__main__":
    sys.exit(main())
