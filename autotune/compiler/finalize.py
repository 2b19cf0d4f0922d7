"""The end of a network's run: its executable compiled, checked and timed, and the `network` part of the summary."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from autotune.compiler.bound import bound_seconds
from autotune.compiler.build import make_feeds
from autotune.compiler.checking.benched import keep
from autotune.compiler.checking.comparison import Check
from autotune.compiler.checking.timing import Timing, time_network
from autotune.compiler.compile_from_records import FOLDER
from autotune.compiler.executable.loading import load, load_manifest
from autotune.compiler.executable.stepwise import StepwiseExecutable
from autotune.compiler.job import NetworkJob
from autotune.compiler.precisions import own_precision
from autotune.compiler.prepare import Network
from autotune.compiler.tuned import check_linked, link_network
from autotune.config import CompileConfig, ConfigError, errors_at
from autotune.schedule_store import ScheduledWorkload
from autotune.titles import INT8
from autotune.tuner.result import TuneResult, none_if_nan
from autotune.tuner.settings import Settings
from measure.hostlock import alone
from measure.steadiness import tell_if_busy
from targets import registry
from targets.executable import Executable

TIMING_RUNS = 11
"""Number of repetitions when steps are timed; medians are taken."""

COMPARISON_RUNTIMES = ("onnxruntime",)
"""Runtimes that a run times beside its network, where they run on the same processor."""

TURNS = 20
"""Number of turns of each runtime when the executable is timed beside it."""


def finish_network(
    network: Network,
    results: Sequence[TuneResult],
    job: NetworkJob,
    folder: Path,
    timed: bool = True,
    say: Callable[[str], None] = lambda text: None,
) -> tuple[dict[str, Any], list[str], str]:
    """Compiles the best kernels of a run, checks the executable and times it.

    Args:
        network: network that was tuned.
        results: results of its tasks.
        job: job of the run.
        folder: the run folder.
        timed: whether to time; a run on recorded answers cannot.
        say: shows a sentence to the user.

    Returns:
        The `network` part of the summary, notes for the user, and the fault of the executable: its outputs are further
        from the reference's than the configuration allows; "" if they are not.
    """
    config, settings = job.config, job.settings
    if network.substitution_result is not None:
        say(f"substitutions: {network.substitution_result}")
    if network.mixture is not None:
        say(f"mixed precision: {network.mixture}")
    schedules, notes = link_network(network, results, job, folder, say)
    tuned, wrong = [each for each in schedules.of_tasks(network.tasks) if not each.provisional], ""
    absent = settings.target.unavailable()
    check, timing, executable = None, None, None
    if absent:  # another machine measured the kernels
        notes.append(f"the network was neither checked nor timed: {absent}")
    else:
        executable = load(folder / FOLDER, settings.threads)
        check, wrong, note = check_linked(network, schedules, executable, settings, job, say)
        notes += [note] if note else []
        notes += _list_accuracy_notes(network, check)
    if timed and executable is not None:
        timing = _time_executable(executable, network, settings, folder / FOLDER, say)
        notes += [f"{name} was not timed: {why}" for name, why in timing.missing.items()]
        notes += [timing.unsteady] if timing.unsteady else []
    facts = load_manifest(folder / FOLDER)
    memory = {
        "arena_bytes": facts["memory"]["arena_bytes"],
        "weights_bytes": facts["weights"]["nbytes"],
        "original_weights_bytes": facts["weights"]["original_nbytes"],
    }
    floats = network.accuracy is None and network.imported_layers is None and bool(network.tasks)
    hardware = results[0].hardware if results else settings.of(network.tasks[0]).target.hardware
    bound = bound_seconds(network.tasks, hardware, settings.threads, job.limits) if floats else None
    untuned = 0.0 if executable is None else _untuned_seconds(executable, network, tuned, settings.seed)
    trials = sum(len(result.records) for result in results)
    document = _document(network, tuned, untuned, trials, check, timing, config, memory, bound)
    if timed and isinstance(executable, StepwiseExecutable):
        document["targets"] = executable.seconds_by_target(TIMING_RUNS)
    return document, notes, wrong


def _list_accuracy_notes(network: Network, check: Check | None) -> list[str]:
    """Notes mixed precision that is less accurate on the check's inputs than on those it was chosen by."""
    costs = [] if check is None else [cost.decibels for cost in check.rounding.values()]
    if network.mixture is None or not costs or min(costs) >= network.mixture.required_decibels:
        return []
    return [
        f"network.accuracy={network.mixture.bound} was kept with {network.mixture.measured_decibels:.1f} dB on the "
        f"inputs that the precisions were chosen by, but those of the check have {min(costs):.1f} dB"
    ]


def _time_executable(
    executable: Executable, network: Network, settings: Settings, folder: Path, say: Callable[[str], None]
) -> Timing:
    with alone():
        if isinstance(executable, StepwiseExecutable):
            return _time_steps(executable, network, settings.seed)
        others = [name for name in settings.target.peers if name in COMPARISON_RUNTIMES]
        return time_network(network, folder, settings, others, TURNS, say)


def _time_steps(executable: StepwiseExecutable, network: Network, seed: int) -> Timing:
    """Times a network whose accelerator is simulated: no other runtime runs it, so that nothing is compared."""
    feeds = make_feeds(network, seed)
    executable(*(feeds[p.name] for p in executable.inputs))
    took = [float(seconds) for seconds in executable.time(TIMING_RUNS)]
    return Timing({"autotune": float(np.median(took))}, {}, {}, {"autotune": took})


def _untuned_seconds(
    executable: Executable, network: Network, schedules: Sequence[ScheduledWorkload], seed: int
) -> float:
    """Times the tasks without a working trial within the network."""
    keys = {each.workload.key for each in schedules}
    untuned_steps = [i for i, s in enumerate(executable.manifest["steps"]) if s.get("task", s["workload"]) not in keys]
    if not untuned_steps:
        return 0.0
    feeds = make_feeds(network, seed)
    executable(*(feeds[p.name] for p in executable.inputs))
    return float(np.median(executable.profile(TIMING_RUNS), axis=0)[untuned_steps].sum())


def compare(
    job: NetworkJob,
    folder: Path | None = None,
    against: Sequence[str] = (),
    turns: int = 20,
    say: Callable[[str], None] = lambda text: None,
    also: Sequence[Path] = (),
) -> Timing:
    """Times the executable of a model beside other runtimes, and compares their outputs.

    Results of the run's own executable are stored in the run folder, for its report.

    Args:
        job: job of the run.
        folder: folder of the executable; that of the run by default.
        against: names of runtimes.
        turns: number of turns of each.
        say: shows a sentence to the user.
        also: run folders of the same model in other precisions.

    Raises:
        ConfigError: a runtime or model is unknown, the target is simulated, or no run wrote the folder.
        ExecutableError: the folder has no executable.
    """
    config, settings = job.config, job.settings
    peers = registry.get(config.target).peers
    if not peers:
        raise ConfigError(
            f"`target` must be one whose networks other runtimes are timed beside, but got {config.target}"
        )
    for name in against:
        if name not in peers:
            raise ConfigError(f"`--against` must be among {', '.join(peers)}, but got {name!r}")
    network_folder = folder or job.folder / FOLDER
    more = [(_read_precision(run), run / FOLDER) for run in also]
    tell_if_busy(say)
    load(network_folder)
    network = job.load()
    precisions = [own_precision(network), *(precision for precision, _ in more)]
    if twice := [precision for at, precision in enumerate(precisions) if precision in precisions[:at]]:
        raise ConfigError(f"executables must be in precisions of their own, but got {twice[0]} twice")
    with alone():
        timing = time_network(network, network_folder, settings, against, turns, say, dict(more), accuracy=True)
    if network_folder == job.folder / FOLDER:
        with errors_at("--network"):
            keep(timing, job.folder, network_folder)
    return timing


def _read_precision(run: Path) -> str:
    """Reads the precision of the network of a run folder from its summary."""
    try:
        network = json.loads((run / "summary.json").read_text())["network"]
        accuracy = network["accuracy"]
        return str(network["precision"] if accuracy is None else accuracy.get("stored", INT8))
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"`--also` must be folders of runs of networks, but {run} is none: {type(error).__name__}: {error}"
        ) from None


def _finite(figures: Mapping[str, float]) -> dict[str, float | None]:
    """Replaces figures that are no numbers by None: an output may have left the range of 16 bits."""
    return {name: value if math.isfinite(value) else None for name, value in figures.items()}


def _document(
    network: Network,
    schedules: Sequence[ScheduledWorkload],
    untuned_seconds: float,
    trials: int,
    check: Check | None,
    timing: Timing | None,
    config: CompileConfig,
    memory: dict[str, int],
    bound: float | None,
) -> dict[str, Any]:
    latencies = {each.workload.key: each.seconds for each in schedules}
    tasks_seconds = untuned_seconds + sum(task.weight * latencies.get(task.workload.key, 0.0) for task in network.tasks)
    seconds = dict(timing.seconds) if timing else {}
    ours = seconds.pop("autotune", None)
    reference = min(seconds, key=lambda name: seconds[name], default=None)
    return {
        "name": network.name,
        "seconds": ours,
        "spread": None if timing is None else none_if_nan(timing.spread("autotune")),
        "reference": reference,
        "reference_seconds": None if reference is None else seconds[reference],
        "max_error": None if check is None else none_if_nan(check.max_error),
        "errors": None if check is None else dict(check.errors),
        "layers": None if check is None else dict(check.layers),
        "precision": network.precision,
        "mixture": None if network.mixture is None else network.mixture.to_json(),
        "rounding": {} if check is None else {name: _finite(asdict(cost)) for name, cost in check.rounding.items()},
        "accuracy": None if network.accuracy is None else network.accuracy.to_json(),
        "imported": None if network.imported_layers is None else network.imported_layers.to_json(),
        "substitutions": None if network.substitution_result is None else network.substitution_result.to_json(),
        "tasks_seconds": tasks_seconds,
        "bound_seconds": bound,
        "trials": trials,
        "seed": config.seed,
        "memory": {**memory, "resident_bytes": dict(timing.memory) if timing else {}},
    }
