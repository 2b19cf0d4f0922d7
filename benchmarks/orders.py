"""Rates of reductions of two operands, in several orders of the operands' dimensions, beside NumPy's `einsum` and TVM.

`python -m benchmarks.orders [--rows product,distances] [--trials 64] [--threads 2]` tunes each order of each
expression (`benchmarks.order_rows`) from nothing. TVM MetaSchedule tunes the first order and the last by as many
trials, in the environment of `benchmarks.tvm`. All of an expression's orders and peers take turns. The command prints
the table, and writes `benchmarks/results/orders.json` once all rows are there.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from benchmarks import tvm
from benchmarks.collected import add_options, add_timing_options, collect
from benchmarks.figures import figures
from benchmarks.interleave import measure_turns
from benchmarks.order_rows import ROWS, OrderRow
from benchmarks.orders_table import EINSUM, TVM, orders
from benchmarks.peers.base import PeerProcess
from benchmarks.tuning import tune_workload

NAME = "orders"


def compare(row: OrderRow, options: argparse.Namespace) -> dict[str, Any]:
    """Tunes every order of an expression and times all of them in turns, beside `einsum` and TVM."""
    running: dict[str, PeerProcess] = {}
    facts: dict[str, Any] = {"flops": row.workload(next(iter(row.orders))).flops, "trials": {}, "tvm": {}}
    with ExitStack() as stack:
        for label in row.orders:
            workload = row.workload(label)
            outcome = tune_workload(workload, options.trials, options.seed, options.threads)
            facts["trials"][label] = outcome.took["trials"]
            running[label] = stack.enter_context(PeerProcess("benchmarks.peers.ours"))
            running[label].prepare(workload, options.threads, **outcome.generated_options)
            if not row.distance:
                running[EINSUM + label] = stack.enter_context(open_einsum(options.threads))
                running[EINSUM + label].prepare(workload, options.threads, row=row.name, order=label)
            if label in row.ends:
                python, counts = tvm.interpreter(options.env), (options.trials,)
                found, said = tvm.search_by_tvm(stack, workload, counts, python, options, row=row.name, order=label)
                running[TVM + label], facts["tvm"][label] = found[options.trials], said
        return {**facts, **figures(measure_turns(running, options.repeat, pause=tvm.PAUSE))}


def open_einsum(threads: int) -> PeerProcess:
    """Starts `einsum` with a BLAS of so many threads; other peers have one."""
    return PeerProcess("benchmarks.peers.einsum_peer", environment={"OPENBLAS_NUM_THREADS": str(threads)})


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses the options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.orders", description=__doc__.partition("\n")[0])
    add_options(parser)
    add_timing_options(parser, 64, "measured candidates of each order")
    tvm.add_environment_options(parser)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the comparison."""
    options = parse(arguments)
    rows = {row.name: row for row in ROWS}
    settings = {name: getattr(options, name) for name in ("threads", "trials", "repeat", "seed")}
    settings |= tvm.make_environment_settings(options)
    options.mcpu = options.mcpu or tvm.host_cpu()

    def summarise(row: Mapping[str, Any]) -> str:
        return ", ".join(f"{who} {row['flops'] / seconds * 1e-9:.1f}" for who, seconds in row["seconds"].items())

    return collect(options, NAME, settings, list(rows), lambda name: compare(rows[name], options), summarise, orders)


if __name__ == "__main__":
    sys.exit(main())
