"""Row of the table: a network compiled in every precision, its outputs compared, and timed in turns with peers."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from autotune.compiler.build import write_network
from autotune.compiler.checking.process import NetworkProcess, RuntimeFailure
from autotune.compiler.compile_from_records import FOLDER
from autotune.compiler.options import CompileOptions
from autotune.compiler.prepare import load_network
from autotune.compiler.schedules import Schedules
from autotune.config import ConfigError, RunConfig, check_config
from autotune.graph.frontends.onnx.model import load_model
from autotune.graph.precision import FULL
from autotune.graph.quantise import TEST_INPUTS, random_feeds
from autotune.run.run import run
from autotune.run.workloads import import_network, make_limits, make_settings
from autotune.run_files import PRECISION
from benchmarks.figures import figures_in_turns
from benchmarks.networks_table import NARROW_PEERS
from benchmarks.precisions.torch_runtime import EAGER, INDUCTOR, INDUCTOR_OPTIONS, TorchProcess
from benchmarks.subjects import Subject, outputs, signal_to_noise
from benchmarks.tuning import NOTHING
from measure.hostlock import alone

PEERS = ("onnxruntime", "openvino", "openvino-as-installed")
EXACT = "onnxruntime"
"""Runtime whose float32 outputs are the reference of decibels."""

SAME = 60.0
"""Decibels that a module in float32 must have for it to be the network that was exported from it."""

WHERE = "precisions"


@dataclass(frozen=True)
class Plan:
    """Plan of the measurements of each network.

    Attributes:
        precisions: precisions of our executables.
        accuracy: accuracy that mixed precision keeps: decibels, or `as openvino`.
        trials: measured candidates of each precision; 0: chosen without trials.
        turns: turns of each runtime; 0: accuracy alone.
        seed: seed of weights and inputs.
        threads: threads of each runtime.
        inductor: whether PyTorch's compiler is a peer, too.
        each_task: whether so many trials are for each task of a network, in place of all together.
    """

    precisions: tuple[str, ...]
    accuracy: float | str
    trials: int
    turns: int
    seed: int
    threads: int
    inductor: bool = False
    each_task: bool = False

    def to_json(self) -> dict[str, Any]:
        """Converts the plan to plain data, as in rows."""
        accuracy = {"accuracy": self.accuracy} if "mixed" in self.precisions else {}
        names = ("trials", "turns", "seed", "threads", "inductor", *(("each_task",) if self.each_task else ()))
        inductor = {"inductor": dict(INDUCTOR_OPTIONS)} if self.inductor else {}
        values = {name: getattr(self, name) for name in names}
        return {"precisions": list(self.precisions), **accuracy, **values, **inductor}

    @property
    def peers(self) -> tuple[str, ...]:
        """Peers of the comparison; peers that may round are included if our precisions may, too."""
        return tuple(peer for peer in PEERS if self._is_beside(peer))

    @property
    def torch(self) -> tuple[str, ...]:
        """PyTorch's runtimes, likewise."""
        return tuple(peer for peer in EAGER + (INDUCTOR if self.inductor else ()) if self._is_beside(peer))

    def _is_beside(self, peer: str) -> bool:
        return peer not in NARROW_PEERS or any(precision != FULL for precision in self.precisions)


def compare(subject: Subject, folder: Path, plan: Plan) -> dict[str, Any]:
    """Measures the row of a network: of each runtime seconds, their steadiness, decibels, or why it is missing."""
    file = subject.file(folder, plan.seed)
    row: dict[str, Any] = {"name": subject.name, "title": subject.name, **plan.to_json(), "missing": {}, "taken": {}}
    row |= {"decibels": {}, "seconds": {}, "built": {}, "resident_bytes": {}}
    network = load_network(load_model(str(file)), subject.name, CompileOptions(seed=plan.seed))
    row |= {"tasks": len(network.tasks), "flops": sum(task.weight * task.workload.flops for task in network.tasks)}
    if plan.each_task:
        plan = replace(plan, trials=plan.trials * len(network.tasks), each_task=False)
    with_weights = folder / "with_weights.onnx"
    network.source.save(with_weights)
    feeds = random_feeds(network.graph.inputs, plan.seed + 1, TEST_INPUTS)
    with ExitStack() as stack:
        processes, answers = [], {}
        for label, kind, facts in _list_processes(subject, file, with_weights, folder, plan, row):
            try:
                process = stack.enter_context(kind(label.split()[0], plan.threads, **facts))
                process.runtime = label  # several of ours take turns
                answers[label] = outputs(process, feeds)
            except RuntimeFailure as error:
                row["missing"][label] = str(error)
                continue
            processes.append(process)
            row["resident_bytes"][label] = process.memory()
            row["taken"] |= {label: process.precision} if process.precision else {}
        row["decibels"] = compute_decibels(answers)
        processes = [process for process in processes if not _is_another(process, row)]
        if plan.turns:
            with alone():
                row |= figures_in_turns(processes, plan.turns)
    return row


def _list_processes(
    subject: Subject, file: Path, model_file: Path, folder: Path, plan: Plan, row: dict[str, Any]
) -> Iterator[tuple[str, type[NetworkProcess], dict[str, str]]]:
    """Lists what processes open: label, whose runtime is its first word; notes failures in `row`."""
    for precision in plan.precisions:
        label = f"autotune {precision}"
        start = time.perf_counter()
        try:
            executable_folder, mixture = compile_network(subject.name, file, precision, folder, plan)
        except ConfigError as error:
            row["missing"][label] = str(error)
            continue
        size = sum(part.stat().st_size for part in executable_folder.iterdir() if part.is_file())
        row["built"][label] = {"seconds": time.perf_counter() - start, "bytes": size, "trials": plan.trials}
        if mixture is not None:
            row["mixture"] = {name: mixture[name] for name in ("wanted", "predicted", "measured", "narrow", "full")}
        yield label, NetworkProcess, {"folder": str(executable_folder)}
    for peer in plan.peers:
        yield peer, NetworkProcess, {"model": str(model_file)}
    model = subject.model
    for peer in plan.torch:
        if model is None:
            row["missing"][peer] = "it must be exported from a module of the survey's list, but is an ONNX file"
        else:
            yield peer, TorchProcess, {"model": json.dumps(model.to_json()), "seed": str(plan.seed)}


def compile_network(
    name: str, file: Path, precision: str, folder: Path, plan: Plan
) -> tuple[Path, dict[str, Any] | None]:
    """Compiles the network, tuned or without trials; returns the executable's folder, and mixed precision's choices.

    Precisions share their records, so mixed ones are chosen and compiled by measurements of the others.

    Raises:
        ConfigError: a network or accuracy that cannot be had.
    """
    config = _config(name, file, precision, folder, plan)
    if plan.trials:
        run(config, WHERE, resume=True)
        chosen = config.folder / PRECISION
        return config.folder / FOLDER, json.loads(chosen.read_text()) if chosen.exists() else None
    settings, limits = make_settings(config), make_limits(config)
    network = import_network(config)
    write_network(network, Schedules(None, settings, limits), config.folder / FOLDER, settings)
    return config.folder / FOLDER, None if network.mixture is None else network.mixture.to_json()


def _config(name: str, file: Path, precision: str, folder: Path, plan: Plan) -> RunConfig:
    keys = {"precision": precision, **({"accuracy": plan.accuracy} if precision == "mixed" else {})}
    document = {
        "model": str(file),
        "name": name,
        "seed": plan.seed,
        "trials": plan.trials,
        "output": str(folder / precision),
        "records": str(folder / "records.jsonl"),
        "network": keys,
        "measure": {"cache": "network", "threads": plan.threads},
        # A search begins from nothing; what is chosen without trials is what a user gets.
        **({"search": {"database": NOTHING}, "cost_model": {"pretrained": NOTHING}} if plan.trials else {}),
        "tracking": {"backend": "none"},  # nothing else shall go on meanwhile
    }
    return check_config(document, WHERE)


def _is_another(process: NetworkProcess, row: dict[str, Any]) -> bool:
    """Tells whether a module differs, in float32, from the network exported from it; it is missing then."""
    found = [row["decibels"][peer] for peer in ("torch", "torch-inductor") if peer in row["decibels"]]
    why = explain_other_module(min(found)) if process.runtime in (*EAGER, *INDUCTOR) and found else ""
    row["missing"] |= {process.runtime: why} if why else {}
    return bool(why)


def explain_other_module(decibels: float) -> str:
    """Returns why a module, in float32, is not the network that was exported from it; "" if it is."""
    return "" if decibels >= SAME else f"the module must compute what it was exported as, but has {decibels:.1f} dB"


def compute_decibels(answers: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, float]:
    """Computes each runtime's decibels against ONNX Runtime in float32, or ours if it is absent; empty without both."""
    reference = EXACT if EXACT in answers else f"autotune {FULL}"
    if reference not in answers:
        return {}
    exact = answers[reference]
    return {label: signal_to_noise(exact, found) for label, found in answers.items() if label != reference}
