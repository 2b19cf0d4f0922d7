"""Comparison of products with sparse weights with our dense kernel, and with PyTorch's and SciPy's sparse products.

`python -m benchmarks.sparsity [--rows NAME,...] [--trials 32] [--threads 1] [--repeat 20]` has all of them take turns,
each in a process of its own, prints the table, and writes `benchmarks/results/sparsity.json` once all rows are there.
Our kernels are chosen without a trial and, unless `--trials 0`, by a search, which may also choose the dense algorithm.
The dense kernel is our own, by as many trials.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from benchmarks.collected import add_options, collect
from benchmarks.figures import beside, figures
from benchmarks.interleave import FEWEST_ROUNDS, measure_turns
from benchmarks.markdown import table
from benchmarks.operators import prepare_processes
from benchmarks.peers.base import PeerProcess
from search_space import workloads

NAME = "sparsity"
SIZE = 1024
"""Inputs and outputs of each weight."""
PEERS = {"torch": "PyTorch dense", "torch_csr": "PyTorch CSR", "torch_bsr": "PyTorch BSR", "scipy_bsr": "SciPy BSR"}
"""Peers → titles; the first is no sparse product."""
OURS = {"dense": "dense", "untimed": "sparse, without trials", "tuned": "sparse"}
ROWS: dict[str, tuple[int, tuple[int, int], int]] = {
    f"{rows}_{block[0]}x{block[1]}_{zeros}": (rows, block, zeros)
    for rows in (64, 256)
    for block in ((16, 1), (4, 4), (1, 16))
    for zeros in (50, 80, 90)
}
"""Rows of data, outputs and inputs of a block, and the share of blocks of zeros in percent."""


def make_workload(rows: int, block: tuple[int, int], zeros: int) -> workloads.Workload:
    """Makes the workload of a row, whose fullest row of blocks has a fifth more than the mean."""
    columns, depth = block
    per_row = SIZE // depth * (100 - zeros) // 100
    blocks = SIZE // columns * per_row
    return workloads.sparse_matmul(rows, SIZE, SIZE, block, blocks, min(SIZE // depth, per_row * 6 // 5))


def compare(row: tuple[int, tuple[int, int], int], options: argparse.Namespace) -> dict[str, Any]:
    """Times our kernels and every peer in turns."""
    from autotune.config import Measure
    from autotune.tuner.task import Task
    from autotune.tuner.tuner import settings_for
    from autotune.tuner.untimed import select_by_roofline
    from benchmarks.tuning import tune_workload
    from targets import registry

    rows, block, zeros = row
    sparse, dense = make_workload(*row), workloads.dense(rows, SIZE, SIZE)
    settings = settings_for(registry.get("cpu"), 1, options.seed, measure=Measure(threads=options.threads))

    def choose(workload: workloads.Workload, trials: int) -> dict[str, Any]:
        if trials:
            return tune_workload(workload, trials, options.seed, options.threads).generated_options
        first = select_by_roofline(Task(NAME, workload), settings)
        return {"algorithm": first.algorithm, "trace": first.trace.to_json(), "target": "cpu"}

    ours = {"untimed": choose(sparse, 0), **({"tuned": choose(sparse, options.trials)} if options.trials else {})}
    runtimes: dict[str, dict[str, Any]] = {**ours, **{name: {"runtime": name} for name in PEERS}}
    with ExitStack() as stack:
        modules = dict.fromkeys(ours, "benchmarks.peers.ours") | dict.fromkeys(PEERS, "benchmarks.peers.sparse_peer")
        running = {name: stack.enter_context(PeerProcess(module)) for name, module in modules.items()}
        beside_dense = {"dense": stack.enter_context(PeerProcess("benchmarks.peers.ours"))}
        able, said = prepare_processes(running, sparse, runtimes, options.threads)
        dense_settings = {"dense": choose(dense, options.trials)}
        also, _ = prepare_processes(beside_dense, dense, dense_settings, options.threads)
        took = measure_turns({**also, **able}, options.repeat)
    facts = {"rows": rows, "block": list(block), "zeros": zeros, "peers": said}
    return {**facts, "algorithms": {name: chosen["algorithm"] for name, chosen in ours.items()}, **figures(took)}


def sparsity(document: Mapping[str, Any]) -> str:
    """Formats a line for each row: times, and ratios to our dense kernel and to the fastest peer."""
    header = ["rows of data", "block", "zeros", *(f"{title} µs" for title in (*OURS.values(), *PEERS.values()))]
    header += ["without trials to dense", "with trials to dense", "with trials to the best peer"]
    lines: list[list[object]] = []
    for row in document["rows"].values():
        took = row["seconds"]
        line: list[object] = [row["rows"], "x".join(map(str, row["block"])), f"{row['zeros']}%"]
        for name in (*OURS, *PEERS):
            dense = " (dense)" if row["algorithms"].get(name) == "dense" else ""
            line.append(f"{took[name] * 1e6:.0f}{dense}" if name in took else "")
        best = min((name for name in PEERS if name in took), key=took.__getitem__, default=None)
        last = "tuned" if "tuned" in took else "untimed"
        line += [beside(row, name, "dense") if name in took else "" for name in ("untimed", "tuned")]
        lines.append([*line, beside(row, last, best) if best is not None else ""])
    return table(header, lines)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses the options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sparsity", description=__doc__)
    add_options(parser)
    parser.add_argument("--trials", type=int, default=32, help="measured candidates of a kernel; 0: none is tuned")
    parser.add_argument("--repeat", type=int, default=FEWEST_ROUNDS, help="rounds of turns")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures the rows that are missing."""
    options = parse(arguments)
    settings = {name: getattr(options, name) for name in ("threads", "trials", "repeat", "seed")}

    def measure(name: str) -> dict[str, Any]:
        return compare(ROWS[name], options)

    def summarise(row: Mapping[str, Any]) -> str:
        return ", ".join(f"{who} {seconds * 1e6:.0f} µs" for who, seconds in row["seconds"].items())

    return collect(options, NAME, settings, list(ROWS), measure, summarise, sparsity)


if __name__ == "__main__":
    sys.exit(main())
