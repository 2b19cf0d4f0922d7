"""Results on the pages, measured: `python -m benchmarks [--long] [--minutes M] [--only NAMES] [--list]`.

Each table has a program of this package; they run one at a time, nothing beside them. Stages that are finished at the
newest commit that changed a package are skipped, so the same command resumes an interrupted run. At the end the tables
and pictures of the pages are rewritten. It takes a working day on two cores. `--long` is another day: searches of many
trials, one thread, and tables of details. A second processor has a folder of its own, `--results
benchmarks/results/PROCESSOR`, whose tables are marked PROCESSOR/NAME in the pages.
"""

from __future__ import annotations

import argparse
import math
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks import results
from benchmarks.provenance import ROOT, is_whole, read_commit
from benchmarks.stages import STAGES, Stage

PAGES = ("table", "pictures")
"""Programs that write measured results into the pages."""


def run(stages: Sequence[Stage], minutes: float, folder: Path = results.FOLDER) -> int:
    """Runs the unfinished stages until the time is over; returns 0 if all are finished then, and 1 otherwise."""
    end = time.monotonic() + 60 * minutes
    left = [stage for stage in stages if not stage.is_finished(folder)]
    for number, stage in enumerate(left, 1):
        rest = (end - time.monotonic()) / 60
        if rest <= 0:
            break
        command = stage.command(rest, folder)
        sys.stderr.write(f"[{number}/{len(left)}] {stage.table}: {' '.join(command[1:])}\n")
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
    parser.add_argument("--long", action="store_true", help="measure the tables of the second day")
    parser.add_argument("--only", help="comma-separated tables of both days, or the beginnings of their names")
    parser.add_argument("--results", type=Path, default=results.FOLDER, help="folder of the result files")
    parser.add_argument("--list", action="store_true", help="show the tables, and which are finished")
    options = parser.parse_args(arguments)
    stages = tuple(stage for stage in STAGES if stage.is_long == options.long)
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
    if not is_whole(read_commit()):
        sys.stderr.write("what is measured must be a commit, but packages or benchmarks are changed\n")
        return 2
    code = run(stages, options.minutes, options.results)
    pages = [subprocess.run([sys.executable, "-m", f"benchmarks.{m}"], cwd=ROOT, check=False) for m in PAGES]
    return max([code, *(page.returncode for page in pages)])


if __name__ == "__main__":
    sys.exit(main())
