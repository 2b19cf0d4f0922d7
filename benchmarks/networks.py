"""Whole networks tuned, compiled and timed beside ONNX Runtime and OpenVINO.

`python -m benchmarks.networks [--rows NAME,...] [--trials 1000,2000] [--turns 20]` writes
`benchmarks/results/networks.json` and prints the table.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import onnx
import yaml

from autotune.config import RunConfig, check_config
from autotune.network.build import make_feeds
from autotune.network.deploy import compare
from autotune.network.rebuilding import FOLDER
from autotune.run.resolve import settings_of
from autotune.run.run import run
from autotune.run.workloads import network_of
from benchmarks import results, tables
from benchmarks.ort_arena import Arena, measure_arena

NETWORKS = ("resnet50", "vgg19", "squeezenet", "inception_v1", "densenet121", "alexnet", "resnet50_int8")
CONFIGS = Path(__file__).resolve().parents[1] / "configs"
PEERS = ("onnxruntime", "openvino")


def measured(name: str, trials: int, turns: int, folder: Path, **keys: Any) -> dict[str, Any]:
    """Tunes a network from nothing, by its configuration in `configs` if there is one, and times it beside the peers.

    Args:
        name: of a model.
        trials: budget.
        turns: that each peer takes.
        folder: the run folder.
        keys: further keys of the configuration.
    """
    shipped = CONFIGS / f"{name}.yaml"
    base = yaml.safe_load(shipped.read_text()) if shipped.exists() else {"model": name, "measure": {"cache": "network"}}
    keys |= {"tracking": {"backend": "none"}}  # nothing else shall go on meanwhile
    config = check_config({**base, "name": name, "trials": trials, "output": str(folder), **keys}, "benchmark")
    start = time.perf_counter()
    outcome = run(config, "benchmark")
    tuned = time.perf_counter() - start
    timing = compare(config, folder / FOLDER, PEERS, turns)
    arena = onnxruntime_arena(config)
    network = outcome.document["network"]
    return {
        "precision": "int8" if network["accuracy"] is not None else network["precision"],
        "seconds": dict(timing.seconds),
        "resident_bytes": dict(timing.memory),
        "tasks": len(outcome.results),
        "trials": network["trials"],
        "run_seconds": tuned,
        "tasks_seconds": network["tasks_seconds"],
        "bound_seconds": network["bound_seconds"],
        "max_error": network["max_error"],
        "memory": network["memory"],
        "onnxruntime_arena": asdict(arena),
        "algorithms": sorted({str(result.algorithm) for result in outcome.results}),
        "flops": sum(result.weight * result.workload.flops for result in outcome.results),
        "failed": sum(sum(result.errors.values()) for result in outcome.results),
    }


def onnxruntime_arena(config: RunConfig) -> Arena:
    """ONNX Runtime's arena on the model of a run."""
    network = network_of(config)
    threads = settings_of(config).threads
    with tempfile.TemporaryDirectory(prefix="autotune-arena-") as place:
        file = Path(place) / "model.onnx"
        onnx.save(network.model, file)
        return measure_arena(file, make_feeds(network, config.seed), threads)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the comparison."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.networks", description=__doc__)
    parser.add_argument("--rows", default=",".join(NETWORKS), help="comma-separated names of models")
    parser.add_argument("--trials", default="1000", help="comma-separated budgets")
    parser.add_argument("--turns", type=int, default=20)
    options = parser.parse_args(arguments)
    for name in options.rows.split(","):
        for trials in map(int, options.trials.split(",")):
            with tempfile.TemporaryDirectory(prefix="autotune-networks-") as place:
                found = measured(name, trials, options.turns, Path(place))
            shown = ", ".join(f"{peer} {seconds * 1e3:.2f} ms" for peer, seconds in found["seconds"].items())
            sys.stderr.write(f"{name}, {trials} trials in {found['run_seconds']:.0f} s: {shown}\n")
            results.save("networks", {"turns": options.turns, "rows": {f"{name} {trials}": {"name": name, **found}}})
    saved = results.load("networks")
    sys.stdout.write((tables.networks(saved) if saved else "no result") + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
