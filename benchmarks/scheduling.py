"""Trials that the gradient scheduler needs to reach what round robin comes to.

`python -m benchmarks.scheduling [--rows NAME,...] [--trials 1000]` writes `benchmarks/results/scheduling.json`.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.config import RunConfig, check_config
from autotune.deploy import limits_of
from autotune.loop import run_rounds
from autotune.pools import make_pool
from autotune.result import TuneResult
from autotune.run import round_size
from autotune.schedulers import SCHEDULERS
from autotune.subject import network_of, settings_of
from autotune.tuner import prepare
from autotune.tuning import Settings
from benchmarks import results, tables

NETWORKS = ("resnet50",)


def curve(found: Sequence[TuneResult]) -> NDArray[np.float64]:
    """Weighted sum of the tasks' best seconds after each trial: (trials,), NaN until every task has one that worked."""
    best = np.full(len(found), np.nan)
    weights = np.array([result.weight for result in found])
    out = []
    for _, number, seconds in sorted((r.time, i, r.seconds) for i, result in enumerate(found) for r in result.records):
        best[number] = np.fmin(best[number], seconds)
        out.append(float(weights @ best))
    return np.array(out)


def reached(sums: NDArray[np.float64], goal: float) -> int | None:
    """Trials after which a curve is at its goal; None where it never is."""
    places = np.flatnonzero(sums <= goal)
    return int(places[0]) + 1 if len(places) else None


def tuned(config: RunConfig, settings: Settings, scheduler: str) -> list[TuneResult]:
    """The network's tasks after a budget that a scheduler shared out."""
    network = network_of(config, "benchmark")
    tunings = [prepare(task, settings, algorithms=limits_of(config).allowed(task.workload)) for task in network.tasks]
    with make_pool("local") as pool:
        return run_rounds(tunings, pool, scheduler=SCHEDULERS[scheduler](), budget=settings.trials)


def measured(name: str, trials: int) -> dict[str, Any]:
    """Both schedulers on one network."""
    keys = {"name": name, "model": name, "trials": trials, "measure": {"cache": "network"}}
    config = check_config(keys, "benchmark")
    settings = settings_of(config, "benchmark")
    count = len(network_of(config, "benchmark").tasks)
    keys["search"] = {"batch": round_size(settings.batch, trials, count)}
    config = check_config(keys, "benchmark")
    settings = settings_of(config, "benchmark")
    curves = {scheduler: curve(tuned(config, settings, scheduler)) for scheduler in SCHEDULERS}
    goal = float(curves["round_robin"][-1])
    return {
        "name": name,
        "trials": trials,
        "tasks": count,
        "final_seconds": {scheduler: float(sums[-1]) for scheduler, sums in curves.items()},
        "reached_after": reached(curves["gradient"], goal),
        "curves": {scheduler: [round(float(s), 7) for s in sums[9::10]] for scheduler, sums in curves.items()},
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the comparison."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scheduling", description=__doc__)
    parser.add_argument("--rows", default=",".join(NETWORKS), help="comma-separated names of models")
    parser.add_argument("--trials", type=int, default=1000)
    options = parser.parse_args(arguments)
    for name in options.rows.split(","):
        start = time.perf_counter()
        found = measured(name, options.trials)
        sys.stderr.write(
            f"{name}: {found['reached_after']} of {options.trials} ({time.perf_counter() - start:.0f} s)\n"
        )
        results.save("scheduling", {"rows": {name: found}})
    saved = results.load("scheduling")
    sys.stdout.write((tables.scheduling(saved) if saved else "no result") + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
