"""Dependence of tuning on the seed: the best kernels of several seeds, timed in turns.

`python -m benchmarks.seeds [--rows NAME,...] [--seeds 5] [--trials 128] [--repeat 20]` prints the table, and writes
`benchmarks/results/seeds.json` once all rows are there.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from benchmarks import tables
from benchmarks.collected import add_options, collect
from benchmarks.figures import figures, milliseconds
from benchmarks.interleave import FEWEST_ROUNDS, measure_turns
from benchmarks.peers.base import PeerProcess
from benchmarks.rows import Row, select
from benchmarks.tuning import tune_workload

NAME = "seeds"
ROWS = ("conv3x3_56_64_64", "conv3x3_28_128_128", "conv3x3_14_256_256", "conv3x3_7_512_512")


def compare(row: Row, options: argparse.Namespace) -> dict[str, Any]:
    """Tunes one row with every seed and times the results; returns seconds and tuning by seed."""
    workload = row.make()
    results = {
        str(seed): tune_workload(workload, options.trials, seed, options.threads) for seed in range(options.seeds)
    }
    with ExitStack() as stack:
        running = {}
        for seed, result in results.items():
            running[seed] = stack.enter_context(PeerProcess("benchmarks.peers.ours"))
            running[seed].prepare(workload, options.threads, **result.generated_options)
        took = measure_turns(running, options.repeat)
    return {
        "title": row.title,
        "class": row.kind,
        "flops": workload.flops,
        "threads": options.threads,
        "trials": options.trials,
        **figures(took),
        "tuning": {seed: result.took for seed, result in results.items()},
    }


def several(text: str) -> int:
    """Parses a number of seeds, at least two for a comparison."""
    if int(text) < 2:
        raise argparse.ArgumentTypeError(f"must be at least 2, but got {text}")
    return int(text)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses the options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.seeds", description=__doc__)
    add_options(parser)
    parser.add_argument("--seeds", type=several, default=5, help="how many: 0, 1, ...")
    parser.add_argument("--trials", type=int, default=128, help="measured candidates a seed")
    parser.add_argument("--repeat", type=int, default=FEWEST_ROUNDS, help="rounds of turns")
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the comparison."""
    options = parse(arguments)
    settings = {name: getattr(options, name) for name in ("threads", "trials", "seeds", "repeat")}

    def measure(name: str) -> dict[str, Any]:
        (row,) = select(name)
        return compare(row, options)

    return collect(options, NAME, settings, ROWS, measure, milliseconds, tables.seeds)


if __name__ == "__main__":
    sys.exit(main())
