"""How much the result of tuning depends on the seed: the best kernels of several seeds, timed in turns.

`python -m benchmarks.seeds [--rows NAME,...] [--seeds 5] [--trials 128] [--repeat 10]` writes
`benchmarks/results/seeds.json` and prints the table.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from benchmarks import results, tables
from benchmarks.interleave import FEWEST_ROUNDS, interleave
from benchmarks.peers.base import PeerProcess
from benchmarks.rows import Row, select
from benchmarks.tuning import tuned

ROWS = "conv3x3_56_64_64,conv3x3_28_128_128,conv3x3_14_256_256,conv3x3_7_512_512"


def compare(row: Row, options: argparse.Namespace) -> dict[str, Any]:
    """Tunes one row with every seed and times what each found; seconds and tuning by seed."""
    workload = row.make()
    found = {str(seed): tuned(workload, options.trials, seed, options.threads) for seed in range(options.seeds)}
    with ExitStack() as stack:
        running = {}
        for seed, result in found.items():
            running[seed] = stack.enter_context(PeerProcess("benchmarks.peers.ours"))
            running[seed].prepare(workload, options.threads, **result.generated)
        seconds = interleave(running, options.repeat)
    return {
        "title": row.title,
        "class": row.kind,
        "flops": workload.flops,
        "threads": options.threads,
        "trials": options.trials,
        "seconds": seconds,
        "tuning": {seed: result.took for seed, result in found.items()},
    }


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.seeds", description=__doc__)
    parser.add_argument("--rows", default=ROWS, help="comma-separated names; default: the 3x3 convolutions")
    parser.add_argument("--seeds", type=int, default=5, help="how many: 0, 1, ...")
    parser.add_argument("--trials", type=int, default=128, help="measured candidates a seed")
    parser.add_argument("--repeat", type=int, default=FEWEST_ROUNDS, help="rounds of turns")
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the comparison."""
    options = parse(arguments)
    try:
        chosen = select(options.rows)
        if options.seeds < 2:
            raise ValueError(f"`seeds` must be at least 2, but got seeds={options.seeds}")
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    for row in chosen:
        start = time.perf_counter()
        found = compare(row, options)
        results.save("seeds", {"repeat": options.repeat, "rows": {row.name: found}})
        shown = ", ".join(f"{seed}: {seconds * 1e3:.3f} ms" for seed, seconds in found["seconds"].items())
        sys.stderr.write(f"{row.title}: {shown} ({time.perf_counter() - start:.0f} s)\n")
    saved = results.load("seeds")
    assert saved is not None
    sys.stdout.write(tables.seeds(saved) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
