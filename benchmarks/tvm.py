"""Comparison of our tuning with TVM MetaSchedule at equal trials: latency of the results, and trials a second.

`python -m benchmarks.tvm [--long] [--rows NAME,...] [--minutes M]` makes an environment for TVM if it is missing, and
prints the table. It writes `benchmarks/results/tvm.json`, or `tvm_long.json`, once all rows of it are there; the same
command resumes. Each searches an operator once, for the most trials; results after fewer trials are built from the
first of them. MetaSchedule's model learns from its first 64 trials, which are drawn at random.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import venv
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.collected import add_options, add_timing_options, collect
from benchmarks.figures import figures, milliseconds
from benchmarks.interleave import measure_turns
from benchmarks.peers.base import PeerProcess, Refusal
from benchmarks.rows import ROWS, Row
from benchmarks.tuning import NOTHING, SHIPPED_KNOWLEDGE, tuned_after
from benchmarks.tvm_table import tvm
from search_space.workloads import Workload

REQUIREMENTS = (
    "apache-tvm==0.27.0.post1",
    "apache-tvm-ffi==0.1.14.post0",
    "xgboost",
    "psutil",
    "cloudpickle",
    "tornado",
    "numpy",
    "llvmlite",  # names the processor
)
TRIALS = {"tvm": (64, 256), "tvm_long": (64, 256, 1000)}
"""Result file → numbers of trials after which both are compared."""
SHORT, LONG = ROWS[::3], ROWS[::9]
"""Rows of the two searches, eight minutes and half an hour each."""
PAUSE = 0.5
"""Seconds between turns: TVM's idle threads spin for .16 to .19 s (Zen 4), and the next to take its turn would pay."""
ENVIRONMENT = Path("~/.cache/autotune-bench/tvm")
Document = dict[str, Any]


def interpreter(folder: Path) -> str:
    """Returns Python of the environment in `folder`, which is made and filled if it is missing."""
    folder = folder.expanduser().resolve()
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    done = folder / "requirements.txt"
    wanted = "\n".join(REQUIREMENTS) + "\n"
    if not done.exists() or done.read_text() != wanted:
        subprocess.run([python, "-m", "pip", "install", "--quiet", *REQUIREMENTS], check=True)
        done.write_text(wanted)
    return str(python)


def host_cpu() -> str:
    """Returns LLVM's name of this processor."""
    from llvmlite import binding

    return str(binding.get_host_cpu_name())


def search_by_tvm(
    stack: ExitStack,
    workload: Workload,
    counts: Sequence[int],
    python: str,
    options: argparse.Namespace,
    environment: Mapping[str, str] | None = None,
    **definition: str,
) -> tuple[dict[int, PeerProcess], Document]:
    """Tunes by TVM; returns processes of its best schedules after each number of trials, and facts about the search.

    Args:
        stack: ends the processes.
        workload: workload to tune.
        counts: numbers of trials; it searches once, for the most.
        python: interpreter of TVM's environment.
        options: `threads`, `seed` and `mcpu` of the command line.
        environment: variables of its processes, on top of the number of threads.
        definition: `row` and `order` of `benchmarks.order_rows`, for a workload that is one of these.

    Raises:
        Refusal: TVM has no definition of the workload.
    """
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="autotune-tvm-"))
    common = {"folder": folder, "mcpu": options.mcpu, "seed": options.seed, **definition}
    variables = {"TVM_NUM_THREADS": str(options.threads), **(environment or {})}
    running: dict[int, PeerProcess] = {}
    said: Document = {}
    for trials in sorted(counts, reverse=True):  # the first of them searches, the others read what it wrote
        theirs = stack.enter_context(PeerProcess("benchmarks.peers.tvm_peer", python, variables))
        told = theirs.prepare(workload, options.threads, trials=max(counts), upto=trials, **common)
        running[trials], said = theirs, {**told, **said}
    rate = said["records"] / said["tuning_seconds"]
    return running, {**said, "seconds": said["tuning_seconds"], "trials_per_second": rate}


def searched_by_us(
    stack: ExitStack,
    workload: Workload,
    counts: Sequence[int],
    options: argparse.Namespace,
    knowledge: str = NOTHING,
) -> tuple[dict[int, PeerProcess], Document]:
    """Searches with ours, from nothing or with shipped knowledge; returns values like those of `search_by_tvm` for
    TVM."""
    after, took = tuned_after(workload, counts, options.seed, options.threads, knowledge)
    running = {trials: stack.enter_context(PeerProcess("benchmarks.peers.ours")) for trials in after}
    for trials, schedule in after.items():
        running[trials].prepare(workload, options.threads, **schedule)
    return running, took


def label_processes(after: Mapping[str, Mapping[int, PeerProcess]]) -> dict[str, PeerProcess]:
    """Processes by whose they are and the number of trials, as results name them."""
    return {f"{who} {trials}": each for who, found in after.items() for trials, each in found.items()}


def compare(row: Row, counts: Sequence[int], python: str, options: argparse.Namespace) -> Document:
    """Tunes one row with both, and times the results after so many trials, all in turns."""
    workload = row.make()
    figures_of_row: Document = {"title": row.title, "class": row.kind}
    with ExitStack() as stack:
        try:
            theirs, said = search_by_tvm(stack, workload, counts, python, options)
        except Refusal as error:
            return {**figures_of_row, "refused": str(error)}
        ours, took = searched_by_us(stack, workload, counts, options)
        informed, took_informed = searched_by_us(stack, workload, counts, options, SHIPPED_KNOWLEDGE)
        running = label_processes({"tvm": theirs, "ours": ours, "shipped": informed})
        figures_of_row["tuning"] = {"ours": took, "tvm": said, "shipped": took_informed}
        return {**figures_of_row, **figures(measure_turns(running, options.repeat, pause=PAUSE))}


def add_search_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of every table that searches with TVM."""
    add_options(parser)
    add_timing_options(parser)
    add_environment_options(parser)


def add_environment_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that tell where TVM is and for which processor it compiles."""
    parser.add_argument("--env", type=Path, default=ENVIRONMENT, help="folder of TVM's environment")
    parser.add_argument("--mcpu", default=None, help="LLVM's name of the processor; default: this host's")


def make_settings(options: argparse.Namespace, counts: Sequence[int]) -> Document:
    """Returns the settings of a table of searches with these numbers of trials."""
    given = {"trials": list(counts), **{key: getattr(options, key) for key in ("threads", "repeat", "seed")}}
    return given | make_environment_settings(options)


def make_environment_settings(options: argparse.Namespace) -> Document:
    """Returns the settings of turns with TVM: pause, version, processor."""
    return {"pause": PAUSE, "peer": REQUIREMENTS[0], "mcpu": options.mcpu or "host"}


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses the options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tvm", description=__doc__)
    parser.add_argument(
        "--long", action="store_true", help="1,000 trials of every ninth operator, in place of 256 of every third"
    )
    add_search_options(parser)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures the rows that are missing."""
    options = parse(arguments)
    name = "tvm_long" if options.long else "tvm"
    by_name = {row.name: row for row in (LONG if options.long else SHORT)}
    counts = TRIALS[name]
    settings = make_settings(options, counts)
    options.mcpu = options.mcpu or host_cpu()

    def measure(name: str) -> Document:
        return compare(by_name[name], counts, interpreter(options.env), options)

    def summarise(row: Mapping[str, Any]) -> str:
        return str(row["refused"]) if "refused" in row else milliseconds(row)

    return collect(options, name, settings, list(by_name), measure, summarise, tvm)


if __name__ == "__main__":
    sys.exit(main())
