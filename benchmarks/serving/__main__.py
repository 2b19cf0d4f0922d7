"""Comparison of requests a second and 99th percentiles with ONNX Runtime and OpenVINO, for several callers, in turns.

`python -m benchmarks.serving [--rows "resnet50 shared",...] [--turns 6]` prints the table, and writes
`benchmarks/results/serving.json` once all rows are there.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from autotune.compiler.build import make_feeds, write_network
from autotune.compiler.compile_from_records import FOLDER
from autotune.compiler.schedules import Schedules
from autotune.config import RunConfig, check_config
from autotune.run.run import run
from autotune.run.workloads import import_network, make_limits, make_settings
from benchmarks.collected import add_options, collect
from benchmarks.peers.base import PeerProcess, Refusal
from benchmarks.serving.callers import Window
from benchmarks.serving.process import RUNTIMES
from benchmarks.serving.table import serving
from measure.host import allowed_cores
from measure.hostlock import alone

NAME = "serving"
NETWORKS = ("mobilenet_v2", "resnet50")
WAYS = ("shared", "side_by_side")
"""One pool of all cores that callers share, or one thread for each call."""

CALLERS = (1, 2, 4)
PROCESS = "benchmarks.serving.process"
MODEL, INPUTS = "model.onnx", "inputs.npz"


def prepare_network(name: str, trials: int, folder: Path) -> None:
    """Writes to `folder` the executable of a network, its model and its inputs, where they are not there yet."""
    if (folder / INPUTS).exists():
        return
    config = _config(name, trials, folder)
    network = import_network(config)
    if trials:
        run(config, "benchmark")
    else:
        settings = make_settings(config)
        write_network(network, Schedules(None, settings, make_limits(config)), config.folder / FOLDER, settings)
    network.source.save(folder / MODEL)
    feeds: dict[str, Any] = make_feeds(network, config.seed)
    np.savez(folder / INPUTS, **feeds)


def _config(name: str, trials: int, folder: Path) -> RunConfig:
    document = {
        "model": name,
        "name": name,
        "trials": trials,
        "output": str(folder / "run"),
        "measure": {"cache": "network"},
        "tracking": {"backend": "none"},  # nothing else shall go on meanwhile
    }
    return check_config(document, "benchmark")


def measure_windows(way: str, folder: Path, turns: int, seconds: float) -> dict[str, Any]:
    """Measures windows of every runtime and number of callers, in turns, and notes why runtimes are missing."""
    cores = len(allowed_cores())
    missing: dict[str, str] = {}
    windows: dict[str, dict[int, list[Window]]] = {}
    with ExitStack() as stack:
        servers: dict[str, PeerProcess] = {}
        for runtime in RUNTIMES:
            source = folder / "run" / FOLDER if runtime == "autotune" else folder / MODEL
            server = stack.enter_context(PeerProcess(PROCESS))
            facts = {"runtime": runtime, "source": str(source), "inputs": str(folder / INPUTS)}
            try:
                threads = cores if way == "shared" else 1
                server.ask({"op": "open", "threads": threads, "cores": cores, **facts})
            except Refusal as error:
                missing[runtime] = str(error)
            else:
                servers[runtime] = server
        windows = in_turns(servers, turns, seconds)
    found = {name: {str(n): figures(of) for n, of in each.items()} for name, each in windows.items()}
    return {"runtimes": found, "missing": missing, "turns": turns, "window_seconds": seconds}


def in_turns(servers: Mapping[str, PeerProcess], turns: int, seconds: float) -> dict[str, dict[int, list[Window]]]:
    """Measures windows by runtime and number of callers; each turn warms up for half as long as it then measures."""
    windows: dict[str, dict[int, list[Window]]] = {name: {n: [] for n in CALLERS} for name in servers}
    for _ in range(turns):
        for callers in CALLERS:
            for name, server in servers.items():
                server.ask({"op": "serve", "callers": callers, "seconds": seconds / 2})
                reply = server.ask({"op": "serve", "callers": callers, "seconds": seconds})
                windows[name][callers].append(Window(reply["seconds"], tuple(reply["latencies"])))
    return windows


def figures(windows: Sequence[Window]) -> dict[str, float | int]:
    """Requests a second and latencies of the faster half of the windows: a shared host has slow seconds."""
    kept = sorted(windows, key=lambda window: -window.rate)[: max(1, (len(windows) + 1) // 2)]
    latencies = np.array([value for window in kept for value in window.latencies])
    return {
        "requests_per_second": float(np.median([window.rate for window in kept])),
        "p50_seconds": float(np.quantile(latencies, 0.5)),
        "p99_seconds": float(np.quantile(latencies, 0.99)),
        "requests": len(latencies),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the comparison."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving", description=__doc__)
    add_options(parser)
    parser.add_argument("--trials", type=int, default=0, help="of each network; 0: the schedules of the roofline")
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=0.6, help="of a window")
    parser.add_argument("--folder", type=Path, help="where compiled networks are kept for the next time")
    options = parser.parse_args(arguments)
    every = {f"{name} {way}": (name, way) for name in NETWORKS for way in WAYS}
    settings = {name: getattr(options, name) for name in ("trials", "turns", "seconds")}
    with ExitStack() as stack:
        place = options.folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="autotune-serving-")))

        def measure(row: str) -> dict[str, Any]:
            name, way = every[row]
            folder = place / f"{name}-{options.trials}"
            if not folder.exists():
                folder.mkdir(parents=True)
                prepare_network(name, options.trials, folder)
            with alone():
                return {"name": name, "way": way, **measure_windows(way, folder, options.turns, options.seconds)}

        def summarise(row: Mapping[str, Any]) -> str:
            return ", ".join(
                f"{name} {found['1']['requests_per_second']:.1f} requests/s" for name, found in row["runtimes"].items()
            )

        return collect(options, NAME, settings, list(every), measure, summarise, serving)


if __name__ == "__main__":
    sys.exit(main())
