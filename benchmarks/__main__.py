"""All that the pages claim, measured: `python -m benchmarks [--minutes M] [--only NAME,...] [--list]`.

A stage is a program of this package, one at a time, nothing beside it. What is finished at the newest commit that
changed a package is passed over, so that the same command goes on where it was stopped; at the end the tables and
pictures of the pages are made anew. All of it takes a working day on two cores.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import results
from benchmarks.collected import UNFINISHED
from benchmarks.provenance import ROOT, commit_of, is_whole
from measure.host import describe_host

STAGES_FILE = "stages.json"


@dataclass(frozen=True)
class Stage:
    """A program to run.

    Attributes:
        name: as `--only` takes it.
        arguments: behind `python -m`.
        minutes: that it takes on two cores, about.
        table: that it collects a row at a time; such a stage takes `--minutes` itself, and goes on with what is left
            when it is begun again.
    """

    name: str
    arguments: tuple[str, ...]
    minutes: float
    table: str = ""


STAGES = (
    Stage("operators", ("benchmarks.operators",), 75, "operators"),
    Stage("networks", ("benchmarks.networks",), 75, "networks_0_2"),
    Stage("networks, one thread", ("benchmarks.networks", "--threads", "1"), 75, "networks_0_1"),
    Stage("networks, ten trials a task", ("benchmarks.networks", "--budget", "10"), 90, "networks_10_2"),
    Stage("networks, 1,000 trials", ("benchmarks.networks", "--budget", "1000"), 120, "networks_1000_2"),
    Stage("int8", ("benchmarks.quantized_networks",), 15),
    Stage("weights", ("benchmarks.weights_only",), 5),
    Stage("gpt2", ("benchmarks.language", "--model", "gpt2"), 15),
    Stage("llama", ("benchmarks.language", "--model", "llama"), 15),
    Stage("tvm", ("benchmarks.tvm",), 180, "tvm"),
    Stage("tvm, 1,000 trials", ("benchmarks.tvm", "--long"), 120, "tvm_long"),
    Stage("models", ("benchmarks.models",), 15),
    Stage("search", ("benchmarks.search",), 15),
    Stage("warm start", ("benchmarks.warm_start",), 15),
    Stage("transfer across targets", ("benchmarks.transfer", "--across", "targets", "--tables", "--seeds", "10"), 15),
    Stage("scheduling", ("benchmarks.scheduling", "--trials", "400"), 20),
    Stage("throughput", ("benchmarks.throughput",), 5),
    Stage("vta", ("benchmarks.vta",), 10),
)

PAGES = ("table", "pictures")
"""Programs that write what was measured into the pages."""


class Finished:
    """Which stages are finished, and of which commit and processor.

    Args:
        folder: of the result files.
    """

    def __init__(self, folder: Path = results.FOLDER) -> None:
        self._path = folder / UNFINISHED / STAGES_FILE
        self.state = f"{commit_of()}, {describe_host()['cpu']}"
        self._of: dict[str, str] = json.loads(self._path.read_text()) if self._path.exists() else {}

    def __contains__(self, stage: Stage) -> bool:
        return self._of.get(stage.name) == self.state

    def add(self, stage: Stage) -> None:
        """Keeps that a stage is finished."""
        self._of[stage.name] = self.state
        self._path.parent.mkdir(parents=True, exist_ok=True)
        part = self._path.with_suffix(".part")
        part.write_text(json.dumps(self._of, indent=1) + "\n")
        os.replace(part, self._path)


def command(stage: Stage, minutes: float) -> list[str]:
    """What runs a stage for at most so long."""
    bound = ["--minutes", f"{max(minutes, 0.1):.1f}"] if stage.table and math.isfinite(minutes) else []
    return [sys.executable, "-m", *stage.arguments, *bound]


def is_whole_now(stage: Stage, folder: Path = results.FOLDER) -> bool:
    """Whether the table of a stage, if it collects one, has all of its rows at this commit."""
    if not stage.table:
        return True
    state = (results.load(stage.table, folder) or {}).get("state", {})
    return bool(state) and state["commit"] == commit_of() and state["cpu"] == describe_host()["cpu"]


def run(stages: Sequence[Stage], minutes: float, finished: Finished, folder: Path = results.FOLDER) -> int:
    """Runs those that are not finished until the time is over; 0 where all are, 1 where one failed or is left."""
    end = time.monotonic() + 60 * minutes
    left = [stage for stage in stages if stage not in finished]
    for place, stage in enumerate(left, 1):
        rest = (end - time.monotonic()) / 60
        if rest <= 0 or (not stage.table and stage.minutes > rest):
            sys.stderr.write(f"{stage.name} takes about {stage.minutes:g} minutes, {max(rest, 0):.0f} are left\n")
            continue
        sys.stderr.write(f"[{place}/{len(left)}] {stage.name}: {' '.join(command(stage, rest)[1:])}\n")
        start = time.monotonic()
        process = subprocess.Popen(command(stage, rest), cwd=ROOT)
        try:
            code = process.wait()
        except KeyboardInterrupt:
            process.send_signal(signal.SIGINT)
            process.wait()
            sys.stderr.write("interrupted; the same command goes on\n")
            return 130
        if code:
            sys.stderr.write(f"{stage.name} failed with code {code}; the others go on\n")
        elif is_whole_now(stage, folder):
            finished.add(stage)
        sys.stderr.write(f"{stage.name}: {(time.monotonic() - start) / 60:.0f} minutes\n")
    return int(any(stage not in finished for stage in stages))


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs all stages, then makes tables and pictures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=math.inf, help="after which no stage and no row is begun")
    parser.add_argument("--only", help="comma-separated stages, by the first word of their names")
    parser.add_argument("--list", action="store_true", help="show the stages, and which are finished")
    options = parser.parse_args(arguments)
    finished, stages = Finished(), STAGES
    if options.only:
        wanted = options.only.split(",")
        stages = tuple(stage for stage in STAGES if stage.name in wanted or stage.name.partition(",")[0] in wanted)
        if not stages:
            parser.error(f"`--only` must be among {', '.join(s.name for s in STAGES)}, but got {options.only!r}")
    if options.list:
        for stage in stages:
            sys.stdout.write(f"{'finished' if stage in finished else f'{stage.minutes:g} min':>10}  {stage.name}\n")
        return 0
    if not is_whole(commit_of()):
        sys.stderr.write("what is measured must be a commit, but packages or benchmarks are changed\n")
        return 2
    code = run(stages, options.minutes, finished)
    pages = [subprocess.run([sys.executable, "-m", f"benchmarks.{m}"], cwd=ROOT, check=False) for m in PAGES]
    return max(code, *(page.returncode for page in pages))


if __name__ == "__main__":
    sys.exit(main())
