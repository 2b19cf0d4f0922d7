"""Trials that the gradient scheduler needs to reach round robin's result.

`python -m benchmarks.scheduling [--rows NAME,...] [--trials 400]` prints the table, and writes
`benchmarks/results/scheduling.json` once all rows are there. Every task is tuned in turn, with `DEPTH` times as many
trials; then both schedulers give out these recorded rounds. So both see the same measurements: two runs of one
scheduler differ more than the schedulers do. `--recorded` measures and writes nothing: it shows today's schedulers on
the recorded rounds, after a change of one.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.config import check_config
from autotune.graph.frontends.onnx.model import ZOO
from autotune.graph.zoo import BUILDERS
from autotune.run.workloads import import_network, make_limits, make_settings
from autotune.tuner.loop import make_state, run_rounds
from autotune.tuner.pools import make_pool
from autotune.tuner.preparation import prepare_task
from autotune.tuner.schedulers import SCHEDULERS, TaskScheduler, TaskState
from benchmarks import results, tables
from benchmarks.collected import add_options, collect
from benchmarks.schedules import export_model

NAME = "scheduling"
NETWORKS = ("squeezenet", "resnet50", "mobilenet_v3_large", "vit_small_patch16_224", "inception_v1", "densenet121")
DEPTH = 3
"""Recorded trials over the trials of the comparison, so that a task may get more than its share."""
BATCH = 4
"""Trials of a round: as many as a run gives its tasks that share few, see `autotune.tuner.tune_tasks.tune_kernels`."""
FOLDER = Path("runs/scheduling")
"""Folder of exports."""
PARTS = (0.25, 0.5, 1.0, 1.5)
"""Budgets that are compared, as parts of the trials."""


def simulate_scheduler(
    scheduler: TaskScheduler, tasks: Sequence[TaskState], rounds: int, first: Sequence[float]
) -> NDArray[np.float64]:
    """Simulates a scheduler; returns the weighted sum of the tasks' best seconds after each round: (rounds,).

    The result of a task depends on its own rounds alone, so their order can be tested on recorded ones.

    Args:
        scheduler: chooses.
        tasks: tasks with all of their recorded rounds.
        rounds: number of rounds.
        first: seconds of each task's first trial, the choice without trials, which counts for a task without a round.
    """
    counts = [0] * len(tasks)
    weights, out = np.array([task.weight for task in tasks]), []
    for _ in range(rounds):
        number = scheduler.choose(
            [
                replace(task, history=task.history[:count], done=count == len(task.history))
                for task, count in zip(tasks, counts, strict=True)
            ]
        )
        if number is None:
            break
        counts[number] += 1
        best = [
            task.history[count - 1] if count else without
            for task, count, without in zip(tasks, counts, first, strict=True)
        ]
        out.append(float(weights @ np.array(best)))
    return np.array(out)


def count_rounds_to(sums: NDArray[np.float64], goal: float) -> int | None:
    """Rounds after which a curve is at its goal; None where it never is."""
    places = np.flatnonzero(sums <= goal)
    return int(places[0]) + 1 if len(places) else None


def locate_model(name: str) -> str:
    """Returns the source of a network; a network that the package lacks is exported from the survey's list."""
    return name if name in (*ZOO, *BUILDERS) else str(export_model(FOLDER, name))


def record_rounds(name: str, trials: int, batch: int) -> tuple[list[TaskState], list[float]]:
    """Tunes the network's tasks in turn, without known schedules; returns them, and seconds of each first trial."""
    keys = {"name": name, "model": locate_model(name), "trials": trials, "measure": {"cache": "network"}}
    keys["search"] = {"batch": batch, "finalists": 0, "database": "none"}
    config = check_config(keys, "benchmark")
    settings, network = make_settings(config), import_network(config)
    tunings = [
        prepare_task(task, settings, algorithms=make_limits(config).list_algorithms(task.workload))
        for task in network.tasks
    ]
    with make_pool(config.measure) as pool:
        run_rounds(tunings, pool, budget=trials)
    first = [min(tuning.records, key=lambda record: record.provenance.order).seconds for tuning in tunings]
    return [make_state(tuning) for tuning in tunings], first


def compare_schedulers(
    tasks: Sequence[TaskState], trials: Sequence[int], batch: int, first: Sequence[float]
) -> list[dict[str, Any]]:
    """Compares both schedulers with each budget; counts the trials that gradient needs to reach round robin's end."""
    curves = {
        name: simulate_scheduler(make(), tasks, 2 * max(trials) // batch, first) for name, make in SCHEDULERS.items()
    }
    comparisons = []
    for budget in trials:
        rounds = budget // batch
        after = count_rounds_to(curves["gradient"][: 2 * rounds], float(curves["round_robin"][rounds - 1]))
        final = {name: float(sums[rounds - 1]) for name, sums in curves.items()}
        reached_after = None if after is None else after * batch
        comparisons.append({"trials": rounds * batch, "final_seconds": final, "reached_after": reached_after})
    return comparisons


def measure_network(name: str, trials: int, batch: int) -> dict[str, Any]:
    """Measures both schedulers on one network."""
    tasks, first = record_rounds(name, DEPTH * trials, batch)
    return {
        "name": name,
        "batch": batch,
        "tasks": len(tasks),
        "trials": trials,
        "budgets": compare_schedulers(tasks, [int(part * trials) for part in PARTS], batch, first),
        "recorded": [
            {
                "weight": task.weight,
                "flops": task.flops,
                "kind": task.kind,
                "first": without,
                "history": list(task.history),
            }
            for task, without in zip(tasks, first, strict=True)
        ],
    }


def again(row: Mapping[str, Any]) -> dict[str, Any]:
    """Updates a row by today's schedulers on its recorded rounds."""
    tasks = [TaskState(of["weight"], of["flops"], of["kind"], tuple(of["history"]), False) for of in row["recorded"]]
    first = [of["first"] for of in row["recorded"]]
    return {
        **row,
        "budgets": compare_schedulers(tasks, [int(part * row["trials"]) for part in PARTS], row["batch"], first),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the comparison."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scheduling", description=__doc__)
    add_options(parser)
    parser.add_argument("--trials", type=int, default=400)
    parser.add_argument("--recorded", action="store_true", help="measure nothing, give out what was recorded")
    options = parser.parse_args(arguments)
    if options.recorded:
        saved = results.load(NAME, options.results) or {"rows": {}}
        given = {"rows": {name: again(row) for name, row in saved["rows"].items()}}
        sys.stdout.write(tables.scheduling(given) + "\n")
        return 0

    def measure(name: str) -> dict[str, Any]:
        return measure_network(name, options.trials, BATCH)

    def summarise(row: Mapping[str, Any]) -> str:
        return ", ".join(f"{budget['reached_after']} for {budget['trials']}" for budget in row["budgets"])

    settings = {"trials": options.trials, "batch": BATCH}
    return collect(options, NAME, settings, NETWORKS, measure, summarise, tables.scheduling)


if __name__ == "__main__":
    sys.exit(main())
