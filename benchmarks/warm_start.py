"""Value of shipped knowledge before the first trial, on other networks: `python -m benchmarks.warm_start`.

Each network's layers are chosen without trials: by the roofline, by the pretrained model, and by this model with the
shipped database of schedules. Searches choose them, too, with and without these. Then all schedules of a layer take
turns. Latencies are sums over layers, each as often as it occurs. Prints the table, and writes
`benchmarks/results/warm_start.json` once all rows are there.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from autotune.compiler.schedules import Schedules
from autotune.compiler.selection import select
from autotune.config import Measure, Model, RunConfig, Search
from autotune.run.workloads import import_network, make_limits
from autotune.schedule import Schedule
from autotune.tuner.record_store import RecordStore
from autotune.tuner.settings import Settings
from autotune.tuner.task import Task
from benchmarks.collected import add_options, collect
from benchmarks.schedules import export_model
from benchmarks.warm_start_table import SEARCHES, column_title, warm_start
from measure.database import Database
from measure.interleaved import InterleavedTimer, InterleavedTiming
from measure.pool import Trial
from targets import registry

NAME = "warm_start"
NETWORKS = ("resnetv2_50", "mobilenet_v3_large", "vit_small_patch16_224")
"""Networks that pools test with: no model learned from their layers, and the database was not filled by them."""
SOURCES: Mapping[str, tuple[str, str]] = {
    "roofline": ("none", "none"),
    "pretrained": ("shipped", "none"),
    "pretrained, database": ("shipped", "shipped"),
}
"""Knowledge → `cost_model.pretrained` and `search.database`."""
BURSTS = 30
"""Bursts of each schedule, in turns."""


def _settings(source: str, threads: int) -> Settings:
    pretrained, database = SOURCES[source]
    search, model = Search(database=database), Model(pretrained=pretrained)
    measure = Measure(cache="network", threads=threads)
    return Settings(registry.get("cpu"), 0, 0, search, model, measure)


def schedules(file: Path, folder: Path, threads: int) -> tuple[Sequence[Task], dict[str, list[Schedule]]]:
    """Chooses a schedule of each layer in each way; returns the network's layers, and schedules by way.

    Raises:
        RuntimeError: a search failed.
    """
    base: dict[str, Any] = {"model": str(file), "target": "cpu", "measure": {"cache": "network", "threads": threads}}
    plain = RunConfig.model_validate({**base, "name": file.stem})
    tasks, limits = import_network(plain).tasks, make_limits(plain)
    by_title: dict[str, list[Schedule]] = {}
    for knowledge in SOURCES:
        of = Schedules(None, _settings(knowledge, threads), limits)
        of.prepare([task.workload for task in tasks])
        by_title[column_title(knowledge, 0)] = [of(task.workload) for task in tasks]
        of.close()
    for knowledge, trials in SEARCHES:
        pretrained, database = SOURCES[knowledge]
        name = f"{file.stem}-{trials}-{pretrained}"
        how = {"cost_model": {"pretrained": pretrained}, "search": {"database": database}, "trials": trials}
        config = folder / f"{name}.yaml"
        config.write_text(yaml.safe_dump({**base, **how, "name": name, "output": str(folder / name)}))
        done = subprocess.run([sys.executable, "-m", "autotune", "run", str(config), "--quiet"], check=False)
        if done.returncode:
            raise RuntimeError(f"the search of {name} failed")
        with Database(folder / name / "records.jsonl", readonly=True) as records:
            best = select(tasks, RecordStore(records, limits.list_algorithms), _settings(knowledge, threads), limits)
        of = Schedules(best, _settings(knowledge, threads), limits)  # layers that no trial came to are chosen without
        by_title[column_title(knowledge, trials)] = [of(task.workload) for task in tasks]
        of.close()
    return tasks, by_title


def latencies(
    tasks: Sequence[Task], schedules: Mapping[str, Sequence[Schedule]], threads: int
) -> dict[str, list[float]]:
    """Times each layer in each way, and returns the seconds of the fastest burst in turns.

    Raises:
        RuntimeError: an output is wrong.
    """
    seconds: dict[str, list[float]] = {title: [] for title in schedules}
    for place, task in enumerate(tasks):
        of = {title: schedules[place] for title, schedules in schedules.items()}
        trials = {
            (s.algorithm, s.trace.key): Trial.of(
                task.workload, s.algorithm, s.trace, target="cpu", threads=threads, cache="network"
            )
            for s in of.values()
        }
        with InterleavedTimer(threads, InterleavedTiming(BURSTS, check=True)) as timer:
            timed = dict(zip(trials, timer.time(list(trials.values())), strict=True))
        for title, schedule in of.items():
            result = timed[schedule.algorithm, schedule.trace.key]
            if not result.ok:
                raise RuntimeError(f"{task.name} by {title}: {result.error}: {result.message}")
            seconds[title].append(result.min_seconds)
    return seconds


def compare(name: str, folder: Path, threads: int) -> dict[str, Any]:
    """Measures the row of a network."""
    tasks, found = schedules(export_model(folder, name), folder, threads)
    milliseconds = {
        title: 1e3 * sum(s * task.weight for s, task in zip(of, tasks, strict=True))
        for title, of in latencies(tasks, found, threads).items()
    }
    return {"layers": len(tasks), "milliseconds": milliseconds}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures one network after the other."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.warm_start", description=__doc__)
    add_options(parser)
    parser.add_argument("--folder", type=Path, default=Path("runs/warm_start"), help="of exports and runs")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)

    def measure(name: str) -> dict[str, Any]:
        return compare(name, options.folder, options.threads)

    def summarise(row: Mapping[str, Any]) -> str:
        return ", ".join(f"{title} {ms:.2f} ms" for title, ms in row["milliseconds"].items())

    return collect(options, NAME, {"threads": options.threads}, NETWORKS, measure, summarise, warm_start)


if __name__ == "__main__":
    sys.exit(main())
