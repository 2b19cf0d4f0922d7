"""What int8 gains over float32 of the same shape: both tuned, checked and timed in turns.

`python -m benchmarks.quantized [--rows NAME,...] [--trials 128] [--repeat 10]` writes
`benchmarks/results/quantized.json` and prints the table. Integers must come out exactly as NumPy computes them.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np

from benchmarks import results, tables
from benchmarks.interleave import FEWEST_ROUNDS, interleave
from benchmarks.peers.base import PeerProcess
from benchmarks.rows import pick
from benchmarks.tuning import tuned
from search_space import workloads
from search_space.schedule.trace import Trace
from search_space.space import program_of
from search_space.workloads import Workload
from targets import registry

DTYPES = ("int8", "float32")
ROWS: dict[str, tuple[str, Callable[..., Workload]]] = {
    "matmul_1024": ("matmul 1024³", partial(workloads.matmul, 1024, 1024, 1024)),
    "conv3x3_14_256_256": (
        "conv 3x3 14² 256→256",
        partial(
            workloads.conv2d, height=14, width=14, in_channels=256, out_channels=256, kernel=3, stride=1, padding=1
        ),
    ),
}
"""Title and workload of a dtype, by name."""


def check_exactly(workload: Workload, schedule: dict[str, Any], threads: int, seed: int = 0) -> None:
    """Builds a schedule and compares its integers with NumPy's, on inputs of the dtypes' whole range.

    Raises:
        AssertionError: one of them differs.
    """
    target = registry.get(schedule["target"])
    program = program_of(workload, schedule["algorithm"], Trace.from_json(schedule["trace"]))
    rng = np.random.default_rng(seed)
    inputs = [
        rng.integers(np.iinfo(spec.dtype).min, np.iinfo(spec.dtype).max, spec.shape, spec.dtype, endpoint=True)
        for spec in workload.inputs
    ]
    found = target.load(target.build(program)).bind(inputs).run(threads)
    np.testing.assert_array_equal(found, workload.reference(*inputs), err_msg=workload.key)


def compare(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Tunes one row in both dtypes and times them; seconds and tuning by dtype."""
    title, make = ROWS[name]
    row: dict[str, Any] = {"title": title, "threads": options.threads, "seconds": {}, "tuning": {}}
    with ExitStack() as stack:
        running = {}
        for dtype in DTYPES:
            workload = make(dtype=dtype)
            result = tuned(workload, options.trials, options.seed, options.threads)
            if dtype == "int8":
                check_exactly(workload, result.generated, options.threads)
            row["tuning"][dtype], row["flops"] = result.took, workload.flops
            running[dtype] = stack.enter_context(PeerProcess("benchmarks.peers.ours"))
            running[dtype].prepare(workload, options.threads, **result.generated)
        row["seconds"] = interleave(running, options.repeat)
    return row


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quantized", description=__doc__)
    parser.add_argument("--rows", help="comma-separated names; default: all")
    parser.add_argument("--trials", type=int, default=128, help="measured candidates a dtype")
    parser.add_argument("--repeat", type=int, default=FEWEST_ROUNDS, help="rounds of turns")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the comparison."""
    options = parse(arguments)
    try:
        chosen = pick(options.rows, ROWS)
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    for name in chosen:
        start = time.perf_counter()
        found = compare(name, options)
        results.save("quantized", {"trials": options.trials, "repeat": options.repeat, "rows": {name: found}})
        shown = ", ".join(f"{dtype} {seconds * 1e3:.3f} ms" for dtype, seconds in found["seconds"].items())
        sys.stderr.write(f"{found['title']}: {shown} ({time.perf_counter() - start:.0f} s)\n")
    saved = results.load("quantized")
    assert saved is not None
    sys.stdout.write(tables.quantized(saved) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
