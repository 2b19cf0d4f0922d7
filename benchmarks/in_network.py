"""Comparison of kernels in a network and alone: alone with cached weights and with weights from memory, in turns.

`python -m benchmarks.in_network [--rows resnet18,...] [--repeat 20]` compiles models of the zoo without trials, prints
the table, and writes `benchmarks/results/in_network.json` once all rows are there. `--models` takes others, and files.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from autotune.compiler.build import make_feeds, write_network
from autotune.compiler.executable.loading import load
from autotune.compiler.options import CompileOptions
from autotune.compiler.prepare import Network, load_network
from autotune.compiler.schedules import Schedules
from autotune.config import check_config
from autotune.graph.frontends.onnx.model import load_model
from autotune.run.workloads import make_limits, make_settings
from autotune.tuner.settings import Settings
from benchmarks.collected import add_options, add_timing_options, collect
from benchmarks.markdown import table
from measure.host import cores_for
from measure.hostlock import alone
from measure.timing import rotation_copies
from search_space.space import make_program
from search_space.workloads import Workload
from targets.base import Bound

NAME = "in_network"
MODELS = ("resnet18", "mobilenet_v2", "bert_base")
ROTATION_BYTES = 1 << 30
"""Bytes of copies of a kernel's constants at most."""
WORTH = 0.97
"""Share of the network's time whose kernels are timed alone, those that take longest first."""
WARM_TIMES = 3
"""Executions of which one is timed where arrays are to be in the cache."""


@dataclass(frozen=True)
class Alone:
    """A kernel that is timed by itself.

    Attributes:
        warm: bound to one set of arrays, which stay in cache as far as they fit.
        cold: bound to so many copies of its constants that each is in memory when its turn comes; None: it has none.
    """

    warm: Bound
    cold: Bound | None

    def seconds(self) -> tuple[float, float]:
        """Times one execution with cached weights, and one with weights from memory."""
        warm = float(self.warm.time(WARM_TIMES)[-1])
        return warm, warm if self.cold is None else float(self.cold.time(1)[0])


def bound_alone(workload: Workload, schedules: Schedules, settings: Settings) -> Alone:
    """Loads the kernel that a network has for a workload, with random inputs."""
    target, schedule = settings.target, schedules(workload)
    kernel = target.load(target.build(make_program(workload, schedule.algorithm, schedule.trace)))
    inputs = workload.make_inputs(seed=0)
    nbytes = sum(array.nbytes for array, spec in zip(inputs, workload.inputs, strict=True) if spec.constant)
    copies = max(2, rotation_copies(nbytes, target.cache_bytes, ROTATION_BYTES)) if nbytes else 1
    return Alone(kernel.bind(inputs), kernel.bind(inputs, copies) if nbytes else None)


def measure_model(name: str, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Measures the row of a model: seconds of its kernels in it and alone, each (rounds,) of sums over the network."""
    document = {
        "model": name,
        "name": NAME,
        "output": str(folder),
        "tracking": {"backend": "none"},
        "seed": options.seed,
        "trials": 0,
    }
    config = check_config({**document, "measure": {"cache": "network", "threads": options.threads}}, NAME)
    network: Network = load_network(load_model(name), Path(name).stem, CompileOptions(seed=options.seed))
    settings = make_settings(config)
    schedules = Schedules(None, settings, make_limits(config))
    write_network(network, schedules, folder, settings)
    os.sched_setaffinity(0, cores_for(options.threads))
    executable = load(folder, options.threads)
    feeds = make_feeds(network, 0)
    executable(*(feeds[p.name] for p in executable.inputs))
    steps = [step["workload"] for step in executable.manifest["steps"]]
    with alone():
        kernels = _longest(steps, executable.profile(5))
        workloads = {task.workload.key: task.workload for task in network.tasks}
        bound = {key: bound_alone(workloads[key], schedules, settings) for key in kernels}
        rounds = []
        for _ in range(options.repeat):
            within, total = executable.profile(2)[-1], executable.time(2)[-1]
            took = {key: each.seconds() for key, each in bound.items()}
            rounds.append([total, within.sum(), *_sums(steps, within, took)])
    total, profiled, shown, warm, cold = np.median(rounds, axis=0).tolist()
    return {"whole": total, "steps": profiled, "shown": shown, "warm": warm, "cold": cold, "kernels": len(bound)}


def _longest(steps: Sequence[str], profile: np.ndarray[Any, Any]) -> list[str]:
    """Selects the kernels that together take `WORTH` of the time."""
    took: Counter[str] = Counter()
    for key, seconds in zip(steps, np.median(profile, axis=0).tolist(), strict=True):
        took[key] += seconds
    longest, left = [], (1 - WORTH) * sum(took.values())
    for key, seconds in sorted(took.items(), key=lambda item: item[1]):
        left -= seconds
        if left < 0:
            longest.append(key)
    return longest


def _sums(steps: Sequence[str], within: Sequence[float], took: Mapping[str, tuple[float, float]]) -> list[float]:
    """Sums seconds of the kernels that are timed alone: in the network, alone with cached and with cold weights."""
    kept = [(float(seconds), *took[key]) for key, seconds in zip(steps, within, strict=True) if key in took]
    return np.sum(kept, axis=0).tolist()


def in_network(document: Mapping[str, Any]) -> str:
    """Formats the table: a line for each model."""
    rows = list(document["rows"].values())
    lines = [
        [
            row["name"],
            f"{row['whole'] * 1e3:.2f}",
            f"{row['shown'] * 1e3:.2f}",
            f"{row['warm'] * 1e3:.2f}",
            f"{row['cold'] * 1e3:.2f}",
            f"{(row['cold'] - row['warm']) / row['shown']:.1%}",
            f"{(row['shown'] - row['cold']) / row['shown']:.1%}",
            row["kernels"],
        ]
        for row in rows
    ]
    head = ["network", "whole ms", "its kernels ms", "alone, weights cached, ms", "alone, weights from memory, ms"]
    return table([*head, "weights", "all else", "kernels"], lines)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses the options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.in_network", description=__doc__.partition("\n")[0])
    add_options(parser)
    parser.add_argument("--models", default=",".join(MODELS), help="names of the zoo or files, with commas between")
    add_timing_options(parser)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures the models."""
    options = parse(arguments)
    models = {Path(name).stem: name for name in options.models.split(",")}
    settings = {name: getattr(options, name) for name in ("threads", "repeat", "seed")}

    def measure(name: str) -> dict[str, Any]:
        with tempfile.TemporaryDirectory(prefix="autotune-in-network-") as place:
            return {"name": name, **measure_model(models[name], options, Path(place))}

    def summarise(row: Mapping[str, Any]) -> str:
        return f"{row['shown'] * 1e3:.2f} ms in the network, {row['warm'] * 1e3:.2f} ms alone"

    return collect(options, NAME, settings, list(models), measure, summarise, in_network)


if __name__ == "__main__":
    sys.exit(main())
