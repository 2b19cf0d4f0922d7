"""All that the pages claim, measured: `python -m benchmarks [--minutes M] [--only NAMES] [--results FOLDER] [--list]`.

Each table has a program of this package, one at a time, nothing beside it. What is finished at the newest commit that
changed a package is passed over, so that the same command goes on where it was stopped; at the end the tables and
pictures of the pages are made anew. All of it takes two working days on two cores. A second processor has a folder of
its own, `--results benchmarks/results/PROCESSOR`, whose tables are marked PROCESSOR/NAME in the pages.
"""

from __future__ import annotations

import argparse
import math
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import results
from benchmarks.collected import LONG
from benchmarks.provenance import ROOT, commit_of, is_whole
from measure.host import describe_host


@dataclass(frozen=True)
class Stage:
    """A program that collects a table, a row at a time.

    Attributes:
        table: of the result file, by which `--only` takes it.
        arguments: behind `python -m`.
        minutes: that it takes on two cores, about.
    """

    table: str
    arguments: tuple[str, ...]
    minutes: float

    def is_finished(self, folder: Path = results.FOLDER) -> bool:
        """Whether its table is of this commit and processor, or takes rows of any."""
        state = (results.load(self.table, folder) or {}).get("state", {})
        if not state or state["commit"] != commit_of():
            return False
        return self.table in LONG or state.get("cpu") == describe_host()["cpu"]

    def command(self, minutes: float, folder: Path = results.FOLDER) -> list[str]:
        """What runs it for at most so long, and writes its table there."""
        bound = ["--minutes", f"{max(minutes, 0.1):.1f}"] if math.isfinite(minutes) else []
        place = ["--results", str(folder)] if folder != results.FOLDER else []
        return [sys.executable, "-m", *self.arguments, *bound, *place]


STAGES = (
    Stage("operators", ("benchmarks.operators",), 75),
    Stage("networks_0_2", ("benchmarks.networks",), 75),
    Stage("networks_0_1", ("benchmarks.networks", "--threads", "1"), 80),
    Stage("networks_10_2", ("benchmarks.networks", "--budget", "10"), 90),
    Stage("networks_1000_2", ("benchmarks.networks", "--budget", "1000"), 120),
    Stage("precisions", ("benchmarks.precisions",), 40),
    Stage("quantized_networks", ("benchmarks.quantized_networks",), 20),
    Stage("weights_only", ("benchmarks.weights_only",), 10),
    Stage("language_2", ("benchmarks.language",), 30),
    Stage("language_1", ("benchmarks.language", "--threads", "1"), 30),
    Stage("lengths", ("benchmarks.lengths",), 30),
    Stage("sizes", ("benchmarks.sizes",), 10),
    Stage("row_wise", ("benchmarks.row_wise",), 45),
    Stage("serving", ("benchmarks.serving",), 5),
    Stage("in_network", ("benchmarks.in_network",), 10),
    Stage("choices", ("benchmarks.choices",), 30),
    Stage("seeds", ("benchmarks.seeds",), 20),
    Stage("tvm", ("benchmarks.tvm",), 180),
    Stage("tvm_long", ("benchmarks.tvm", "--long"), 120),
    Stage("models", ("benchmarks.models",), 15),
    Stage("search", ("benchmarks.search",), 15),
    Stage("warm_start", ("benchmarks.warm_start",), 16),
    Stage("transfer", ("benchmarks.transfer",), 5),
    Stage("scheduling", ("benchmarks.scheduling",), 20),
    Stage("throughput", ("benchmarks.throughput",), 5),
    Stage("vta", ("benchmarks.vta",), 10),
    Stage("pytorch", ("benchmarks.pytorch",), 120),
)
"""Apart from what needs a GPU, files of others (`benchmarks.hub`), or a day (`benchmarks.survey`)."""

PAGES = ("table", "pictures")
"""Programs that write what was measured into the pages."""


def run(stages: Sequence[Stage], minutes: float, folder: Path = results.FOLDER) -> int:
    """Runs those that are not finished until the time is over; 0 where all are, 1 where one failed or is left."""
    end = time.monotonic() + 60 * minutes
    left = [stage for stage in stages if not stage.is_finished(folder)]
    for place, stage in enumerate(left, 1):
        rest = (end - time.monotonic()) / 60
        if rest <= 0:
            break
        command = stage.command(rest, folder)
        sys.stderr.write(f"[{place}/{len(left)}] {stage.table}: {' '.join(command[1:])}\n")
        start = time.monotonic()
        process = subprocess.Popen(command, cwd=ROOT)
        try:
            code = process.wait()
        except KeyboardInterrupt:
            process.send_signal(signal.SIGINT)
            process.wait()
            sys.stderr.write("interrupted; the same command goes on\n")
            return 130
        if code:
            sys.stderr.write(f"{stage.table} failed with code {code}; the others go on\n")
        sys.stderr.write(f"{stage.table}: {(time.monotonic() - start) / 60:.0f} minutes\n")
    return int(not all(stage.is_finished(folder) for stage in stages))


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs all stages, then makes tables and pictures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=math.inf, help="after which no stage and no row is begun")
    parser.add_argument("--only", help="comma-separated tables, or the beginnings of their names")
    parser.add_argument("--results", type=Path, default=results.FOLDER, help="folder of the result files")
    parser.add_argument("--list", action="store_true", help="show the tables, and which are finished")
    options = parser.parse_args(arguments)
    stages = STAGES
    if options.only:
        wanted = tuple(options.only.split(","))
        stages = tuple(stage for stage in STAGES if stage.table.startswith(wanted))
        if not stages:
            parser.error(f"`--only` must be among {', '.join(s.table for s in STAGES)}, but got {options.only!r}")
    if options.list:
        for stage in stages:
            sys.stdout.write(
                f"{'finished' if stage.is_finished(options.results) else f'{stage.minutes:g} min':>10}  {stage.table}\n"
            )
        return 0
    if not is_whole(commit_of()):
        sys.stderr.write("what is measured must be a commit, but packages or benchmarks are changed\n")
        return 2
    code = run(stages, options.minutes, options.results)
    pages = [subprocess.run([sys.executable, "-m", f"benchmarks.{m}"], cwd=ROOT, check=False) for m in PAGES]
    return max([code, *(page.returncode for page in pages)])


if __name__ == "__main__":
    sys.exit(main())
