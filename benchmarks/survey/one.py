"""One model of the survey, from its ONNX file to its figures: `python -m benchmarks.survey.one REQUEST`."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from autotune.compiler.bound import bound_seconds
from autotune.compiler.build import make_feeds, write_network
from autotune.compiler.checking.check import TOLERANCE
from autotune.compiler.checking.comparison import Check, against_float64, compute_errors
from autotune.compiler.checking.process import NetworkProcess, RuntimeFailure, time_in_turns
from autotune.compiler.checking.timing import Timing
from autotune.compiler.compile_from_records import FOLDER
from autotune.compiler.executable.loading import load
from autotune.compiler.options import CompileOptions
from autotune.compiler.prepare import Network, load_network
from autotune.compiler.schedules import Schedules
from autotune.config import RunConfig, check_config
from autotune.graph.errors import UnsupportedModelError
from autotune.graph.frontends.onnx.model import load_model
from autotune.graph.frontends.onnx.nodes import NodeError
from autotune.graph.ir import Array
from autotune.run.run import run
from autotune.run.workloads import make_limits, make_settings
from autotune.tuner.settings import Settings
from benchmarks.figures import figures
from benchmarks.precisions.compare import explain_other_module
from benchmarks.precisions.torch_runtime import TorchProcess
from benchmarks.subjects import signal_to_noise
from benchmarks.survey.models import MODULES, PEERS
from benchmarks.survey.process import Facts, within
from measure.host import cores_for
from measure.hostlock import alone

PROFILE_RUNS = 10
"""Inferences of which the median of each step counts."""

TOP_ROWS = 5
"""Layers that are kept, those first that lose most."""

WHERE = "survey"


def main() -> None:
    """Takes the model of the request through all stages; facts of each are noted at once."""
    request = json.loads(sys.argv[1])
    within(request["memory_bytes"])
    facts = Facts(Path(request["facts"]))
    with facts.failures():
        take(request, facts)


def take(request: Mapping[str, Any], facts: Facts) -> None:
    """Runs all stages: import, compile, agreement, timing, profile."""
    file, folder = Path(request["file"]), Path(request["folder"])
    facts.begin("import")
    start = time.perf_counter()
    try:
        network = load_network(load_model(file), request["name"], CompileOptions(seed=request["seed"]))
    except UnsupportedModelError as error:
        facts.add(refused=str(error))
        return
    if not network.tasks:
        facts.add(refused="a model must have something to compute, but this one has not")
        return
    facts.add(import_seconds=time.perf_counter() - start, tasks=len(network.tasks))

    facts.begin("compile")
    config = _config(request, len(network.tasks))
    settings = make_settings(config)
    start = time.perf_counter()
    executable_folder = compile_network(network, config, settings, folder)
    facts.add(compile_seconds=time.perf_counter() - start)

    with Beside(network, executable_folder, request, folder) as runtimes:
        facts.begin("agreement")
        facts.add(missing=runtimes.missing, **agreement(network, runtimes.outputs, runtimes.feeds))
        facts.begin("timing")
        with alone():
            took = time_in_turns(runtimes.processes, request["turns"])
    turns = {name: each.latencies for name, each in took.items()}
    timing = Timing({name: each.steady for name, each in took.items()}, {}, {}, turns)
    facts.add(seconds=dict(timing.seconds), halves=figures(turns)["halves"], unsteady=timing.unsteady)

    facts.begin("profile")
    with alone():
        facts.add(**profile(network, executable_folder, config, settings))
    facts.add(stage="")


def _config(request: Mapping[str, Any], tasks: int) -> RunConfig:
    document = {
        "model": request["file"],
        "name": request["name"],
        "seed": request["seed"],
        "trials": request["trials"] * (tasks if request["each_task"] else 1),
        "output": str(Path(request["folder"]) / "run"),
        "measure": {"cache": "network", "threads": request["threads"]},
        "tracking": {"backend": "none"},  # nothing else shall go on meanwhile
    }
    return check_config(document, WHERE)


def compile_network(network: Network, config: RunConfig, settings: Settings, folder: Path) -> Path:
    """Compiles a network, tuned from nothing or without trials; returns the executable's folder."""
    if config.trials:
        run(config, WHERE)
        return config.folder / FOLDER
    write_network(network, Schedules(None, settings, make_limits(config)), folder / FOLDER, settings)
    return folder / FOLDER


class Beside:
    """Our executable and the peers, each in a process of its own that has inferred once; a context manager.

    Attributes:
        processes: ours first.
        feeds: inputs by name.
        outputs: runtime -> outputs in the model's order, by the model's names.
        missing: peers that are not there or refuse the model, and why.

    Raises:
        RuntimeFailure: the executable cannot be run.
    """

    def __init__(self, network: Network, executable_folder: Path, request: Mapping[str, Any], folder: Path) -> None:
        file, names = folder / "with_weights.onnx", network.source.output_names
        module = {"model": json.dumps(request["model"]), "seed": str(request["seed"])}
        network.source.save(file)
        self.feeds = make_feeds(network, 0)
        self.processes: list[NetworkProcess] = []
        self.outputs: dict[str, dict[str, Array]] = {}
        self.missing: dict[str, str] = {}
        try:
            for runtime in ("autotune", *request["peers"]):
                kind, opened = NetworkProcess, {"model": str(file)}
                if runtime == "autotune":
                    opened = {"folder": str(executable_folder)}
                elif runtime in MODULES:
                    kind, opened = TorchProcess, module
                try:
                    process = kind(runtime, request["threads"], **opened)
                    self.processes.append(process)
                    results_of_run = process.infer(self.feeds)
                except RuntimeFailure as error:
                    if runtime == "autotune":
                        raise
                    self.missing[runtime] = str(error)
                    self._drop(runtime)
                else:
                    self.outputs[runtime] = dict(zip(names, results_of_run.values(), strict=True))
            self._drop_other_modules()
        except BaseException:
            self.close()
            raise

    def _drop_other_modules(self) -> None:
        """Drops modules of PyTorch that compute another network than the one exported from them."""
        reference = next((name for name in PEERS if name in self.outputs), None)
        if reference is None:
            return
        for runtime in [name for name in MODULES if name in self.outputs]:
            decibels = signal_to_noise([self.outputs[reference]], [self.outputs[runtime]])
            if why := explain_other_module(decibels):
                self.missing[runtime] = why
                self._drop(runtime)

    def _drop(self, runtime: str) -> None:
        for process in self.processes:
            if process.runtime == runtime:
                process.close()
        self.processes = [process for process in self.processes if process.runtime != runtime]

    def close(self) -> None:
        """Ends the processes."""
        for process in self.processes:
            process.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def agreement(
    network: Network, outputs: Mapping[str, Mapping[str, Array]], feeds: Mapping[str, Array]
) -> dict[str, Any]:
    """Compares our outputs with a peer's; with the model in float64 if they differ by more than the tolerance.

    `right` is None if nothing can be said: no runtime takes the model, or its outputs are not finite or all of one
    value.
    """
    ours = outputs["autotune"]
    peer = next((name for name in PEERS if name in outputs), None)
    try:
        wanted = network.source.exact_outputs(feeds) if peer is None else outputs[peer]
    except NodeError as error:
        return {"right": None, "note": f"a reference must run the model, but none does: {error}"}
    if empty := [name for name, array in wanted.items() if not _tells(array)]:
        return {"right": None, "note": f"outputs must be finite and of several values, but {empty[0]} is not"}
    check = Check(peer or "the model in float64", compute_errors(ours, wanted))
    if check.max_error > TOLERANCE and peer is not None:
        check = against_float64(check, network.source, feeds, ours, wanted)
    return {
        "right": check.max_error <= TOLERANCE,
        "reference": check.reference,
        "error": min(check.max_error, sys.float_info.max),  # JSON has no infinity
        "note": check.note,
    }


def _tells(array: Array) -> bool:
    return bool(np.isfinite(array).all()) and (array.size < 2 or bool((array != array.flat[0]).any()))


def profile(network: Network, executable_folder: Path, config: RunConfig, settings: Settings) -> dict[str, Any]:
    """Computes seconds of the network's bound, and lists the layers that lose most against theirs."""
    os.sched_setaffinity(0, cores_for(settings.threads))
    executable = load(executable_folder, settings.threads)
    feeds = make_feeds(network, 0)
    executable(*(feeds[p.name] for p in executable.inputs))
    executable.profile(3)  # warm
    seconds = np.median(executable.profile(PROFILE_RUNS), axis=0)  # (steps,)
    hardware, limits = settings.target.hardware, make_limits(config)
    bounds = {t.workload.key: bound_seconds([t], hardware, settings.threads, limits) / t.weight for t in network.tasks}
    names = {t.workload.key: t.name for t in network.tasks}
    keys, took = [], []
    for step, whole in zip(executable.manifest["steps"], seconds.tolist(), strict=True):
        trips = step.get("trips", 1)  # of a loop, whose seconds are those of all
        keys += [step["workload"]] * trips
        took += [whole / trips] * trips
    return {
        "bound_seconds": sum(bounds[key] for key in keys),
        "layers": furthest(keys, took, bounds, names),
    }


def furthest(
    keys: Sequence[str], seconds: Sequence[float], bounds: Mapping[str, float], names: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Ranks layers by their loss against the bound, all occurrences together, most first.

    Args:
        keys: workload of each step.
        seconds: seconds of each step.
        bounds: seconds that one occurrence takes at least, by workload.
        names: names of the tasks, by workload.
    """
    by_workload: dict[str, dict[str, Any]] = {}
    for key, took in zip(keys, seconds, strict=True):
        row = by_workload.setdefault(
            key, {"name": names[key], "workload": key, "count": 0, "seconds": 0.0, "bound_seconds": 0.0}
        )
        row["count"] += 1
        row["seconds"] += took
        row["bound_seconds"] += bounds[key]
    whole = sum(seconds)
    for row in by_workload.values():
        row["share"] = row["seconds"] / whole
    return sorted(by_workload.values(), key=lambda row: row["bound_seconds"] - row["seconds"])[:TOP_ROWS]


if __name__ == "__main__":
    main()
