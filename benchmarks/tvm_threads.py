"""Effect of bound threads on TVM: searches and their results, with and without, beside ours in turns.

`python -m benchmarks.tvm_threads [--rows NAME,...] [--minutes M]` prints the table and writes
`benchmarks/results/tvm_threads.json` once all rows of it are there; the same command resumes. By default TVM binds its
worker to a core, which the system may also choose for its main thread; with `TVM_BIND_THREADS=0` it binds none. The
variable is set in the search, where MetaSchedule times its trials, and in the turns. Rows are those of the long search.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import ExitStack

from benchmarks import tvm
from benchmarks.collected import collect
from benchmarks.figures import figures, milliseconds
from benchmarks.interleave import measure_turns
from benchmarks.rows import Row
from benchmarks.tvm_table import tvm_threads

NAME = "tvm_threads"
VARIABLES: dict[str, dict[str, str]] = {"bound": {}, "free": {"TVM_BIND_THREADS": "0"}}
"""Binding of TVM's threads → variables of its processes."""
COUNTS = tvm.TRIALS["tvm"]


def compare(row: Row, python: str, options: argparse.Namespace) -> tvm.Document:
    """Tunes one row with TVM in every way and with ours, and times the results, all in turns.

    Raises:
        Refusal: TVM has no definition of the row.
    """
    workload = row.make()
    with ExitStack() as stack:
        after, took = {}, {}
        for way, variables in VARIABLES.items():
            after[way], took[way] = tvm.search_by_tvm(stack, workload, COUNTS, python, options, variables)
        after["ours"], took["ours"] = tvm.searched_by_us(stack, workload, COUNTS, options)
        turns = measure_turns(tvm.label_processes(after), options.repeat, pause=tvm.PAUSE)
        return {"title": row.title, "class": row.kind, "tuning": took, **figures(turns)}


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses the options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tvm_threads", description=__doc__)
    tvm.add_search_options(parser)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures the rows that are missing."""
    options = parse(arguments)
    by_name = {row.name: row for row in tvm.LONG}
    settings = tvm.make_settings(options, COUNTS)
    options.mcpu = options.mcpu or tvm.host_cpu()

    def measure(name: str) -> tvm.Document:
        return compare(by_name[name], tvm.interpreter(options.env), options)

    return collect(options, NAME, settings, list(by_name), measure, milliseconds, tvm_threads)


if __name__ == "__main__":
    sys.exit(main())
