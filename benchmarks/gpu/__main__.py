"""`python -m benchmarks.gpu [--seconds 300] [--trials 48] [--rows NAME,...] [--output FOLDER]` writes `gpu.json`.

Each row is tuned, then its winner is timed beside PyTorch in a process of its own, which has a time limit. This process
never touches the device, so neither a kernel that hangs nor one that faults takes more than its row along. Rows are
begun until the time is up, the most telling ones first; the file is written after each.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from autotune.config import Measure, Search
from autotune.tuner.loop import run_rounds
from autotune.tuner.preparation import prepare_task
from autotune.tuner.result import TuneResult
from autotune.tuner.settings import Settings
from autotune.tuner.task import Task
from benchmarks import results
from benchmarks.gpu.rows import ROWS, Row
from benchmarks.gpu.wary import WaryPool
from benchmarks.provenance import EVERYWHERE
from measure.local import LocalPool
from measure.pool import MeasurePool
from targets import registry
from targets.cuda.driver import devices, missing_device
from targets.cuda.hardware import own_arch

TRIAL_SECONDS = 2.0
"""Time limit of the checks and timing of a trial, in seconds."""
ROW_SECONDS = 60.0
"""Time limit of the process that times a winner."""
BESIDE = "benchmarks.gpu.beside"


def search(row: Row, target: str, pool: MeasurePool, trials: int, seed: int) -> TuneResult:
    """Searches for the best candidate of a row."""
    workload = row.make()
    settings = Settings(
        registry.get(target), trials, seed, Search(batch=max(16, trials // 3), finalists=0), measure=Measure(threads=1)
    )
    (result,) = run_rounds([prepare_task(Task(row.name, workload), settings)], pool)
    return result


class Beside:
    """A process that times a winner beside PyTorch, begun while the search is running."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", BESIDE]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True)

    def compare(self, result: TuneResult, seed: int, limit: float = ROW_SECONDS) -> dict[str, Any]:
        """Compares the winner with PyTorch, and returns the figures.

        Raises:
            TimeoutError: it did not answer in time.
            RuntimeError: it failed; its last words.
        """
        header = json.dumps({"workload": result.workload.to_json(), "seed": seed}).encode() + b"\n"
        try:
            out, errors = self.process.communicate(header + result.module.to_bytes(), limit)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"the winner must be timed within {limit:g} s, but was not") from None
        if self.process.returncode:
            words = errors.decode(errors="replace").strip().splitlines()[-1:] or ["nothing"]
            raise RuntimeError(f"the winner's process ended with {self.process.returncode} and said {words[0]}")
        return dict(json.loads(out))

    def close(self) -> None:
        """Kills it; a process that the driver holds is abandoned."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, 9)


def measure(row: Row, target: str, pool: MeasurePool, trials: int, seed: int) -> dict[str, Any]:
    """Tunes a row and times its winner."""
    beside, begun = Beside(), time.perf_counter()
    try:
        result = search(row, target, pool, trials, seed)
        row_figures: dict[str, Any] = {"kind": row.kind, "flops": result.workload.flops, "trials": trials}
        row_figures |= {"tuning_seconds": time.perf_counter() - begun, "errors": result.errors}
        if result.best is None:
            return {**row_figures, "problem": result.problem}
        row_figures |= {"algorithm": result.algorithm, "sketch": str(result.trace), "seconds": result.best_seconds}
        return {**row_figures, **beside.compare(result, seed)}
    finally:
        beside.close()


def means(rows: dict[str, dict[str, Any]]) -> dict[str, float]:
    """Computes geometric means of PyTorch's time over ours, by kind of row and state of the cache."""
    out = {}
    for kind in dict.fromkeys(row["kind"] for row in rows.values()):
        for state in ("warm", "cold"):
            ratios = [r[f"ratio_{state}"] for r in rows.values() if r["kind"] == kind and f"ratio_{state}" in r]
            if ratios:
                out[f"{kind}_{state}"] = math.exp(sum(map(math.log, ratios)) / len(ratios))
    return out


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures until the time is up; 1 where a row failed, 2 where there is no GPU."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--seconds", type=float, default=300.0, help="after which no row is begun")
    parser.add_argument("--trials", type=int, default=48, help="measured candidates a row")
    parser.add_argument("--rows", help="comma-separated names; default: all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, help="folder of gpu.json; $OUT by default, or that of all results")
    options = parser.parse_args(arguments)
    names = [row.name for row in ROWS]
    wanted = options.rows.split(",") if options.rows else names
    if unknown := [name for name in wanted if name not in names]:
        sys.stderr.write(f"`--rows` must be among {', '.join(names)}, but got {unknown[0]!r}\n")
        return 2
    if why := missing_device():
        sys.stderr.write(f"{why}\n")
        return 2
    folder = options.output or (Path(os.environ["OUT"]) if os.environ.get("OUT") else results.FOLDER)
    device = devices()[0]
    target = f"cuda:{own_arch(device.target.removeprefix('cuda:'))}"
    document: dict[str, Any] = {"device": device.name, "arch": target.removeprefix("cuda:"), "wanted": wanted}
    document["date"] = datetime.now(UTC).date().isoformat()
    begun, rows, failed = time.perf_counter(), {}, False
    with WaryPool(LocalPool(), TRIAL_SECONDS) as pool:
        for row in (r for r in ROWS if r.name in wanted):
            if time.perf_counter() - begun > options.seconds:
                sys.stderr.write(f"time is up before {row.name}\n")
                break
            try:
                figures = measure(row, target, pool, options.trials, options.seed)
            except Exception as error:  # time on a device is short: other rows are measured, and the exit code tells
                traceback.print_exception(error)
                figures, failed = {"kind": row.kind, "problem": f"{type(error).__name__}: {error}"}, True
            rows[row.name] = figures
            results.save("gpu", {**document, "means": means(rows), "rows": {row.name: figures}}, folder, EVERYWHERE)
            shown = {k: v for k, v in figures.items() if k in ("warm", "ratio_warm", "ratio_cold", "problem")}
            sys.stderr.write(f"{row.name}: {shown}\n")
    sys.stdout.write("\n".join(f"{name}: {ratio:.2f}x" for name, ratio in means(rows).items()) + "\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
