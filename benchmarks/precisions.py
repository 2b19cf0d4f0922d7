"""Networks in float32 and in bfloat16 beside ONNX Runtime and OpenVINO, which takes bfloat16 by itself where it pays.

`python -m benchmarks.precisions [--rows NAME,...] [--files A.onnx,...] [--precisions float32,bfloat16] [--trials 0]
[--turns 20]` exports networks of the survey's list with random weights (or takes files), compiles each in every
precision, and writes `benchmarks/results/precisions.json`. All run in turns, each in a process of its own. Accuracy is
the signal to noise of the outputs against the network in float32 on ONNX Runtime: of the worst output, on two sets of
inputs.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import onnx

from autotune.config import check_config
from autotune.graph.onnx_model import load_model
from autotune.graph.precision import FULL, PRECISIONS
from autotune.graph.quantise import TEST_INPUTS, random_feeds
from autotune.network.load import load_network
from autotune.network.process import NetworkProcess, RuntimeFailure, interleaved, of_turns
from autotune.run.resolve import settings_of
from benchmarks import results, tables
from benchmarks.quantized_networks import exported, outputs, signal_to_noise
from benchmarks.rows import pick
from benchmarks.survey.one import compiled
from measure.hostlock import alone
from measure.steadiness import disagreement, halves_of

ROWS = (
    "resnet50",
    "densenet121",
    "squeezenet1_0",
    "googlenet",
    "mobilenet_v2",
    "mobilenet_v3_large",
    "efficientnet_b0",
    "resnext50_32x4d",
    "convnext_tiny",
    "vit_small_patch16_224",
    "distilbert_base",
    "bert_base",
)
"""Half of them are in no configuration that this package ships."""
PEERS = ("onnxruntime", "openvino", "openvino-as-installed")
NAME = "precisions"


def compare(name: str, file: Path, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """The row of one network: seconds, decibels and the unsteadiness of the machine, by runtime and precision."""
    row: dict[str, Any] = {"title": name, "threads": options.threads, "trials": options.trials}
    row |= {"decibels": {}, "seconds": {}, "missing": {}}
    opened: dict[str, dict[str, str]] = {}
    for precision in options.precisions:
        opened[f"autotune {precision}"] = {"folder": str(_compiled(name, file, precision, folder, options))}
    whole = folder / "with_weights.onnx"
    network = load_network(load_model(str(file)), name, options.seed)
    onnx.save(network.model, whole)
    opened |= {peer: {"model": str(whole)} for peer in PEERS}
    feeds = random_feeds(network.graph.inputs, options.seed + 1, TEST_INPUTS)
    with ExitStack() as stack:
        processes = []
        for label, facts in opened.items():
            try:
                process = stack.enter_context(NetworkProcess(label.split()[0], options.threads, **facts))
            except RuntimeFailure as error:
                row["missing"][label] = str(error)
                continue
            process.runtime = label  # two of ours take turns
            processes.append(process)
        answers = {process.runtime: outputs(process, feeds, folder) for process in processes}
        row["decibels"] = _decibels(answers)
        if options.turns:
            with alone():
                took = interleaved(processes, options.turns)
            row["seconds"] = {label: of_turns(turns) for label, turns in took.items()}
            row["unsteady"] = max(disagreement(halves_of(turns)) for turns in took.values())
    return row


def _compiled(name: str, file: Path, precision: str, folder: Path, options: argparse.Namespace) -> Path:
    document = {
        "model": str(file),
        "name": name,
        "seed": options.seed,
        "trials": max(1, options.trials),
        "output": str(folder / precision / "run"),
        "network": {"precision": precision},
        "measure": {"cache": "network", "threads": options.threads},
        "tracking": {"backend": "none"},  # nothing else shall go on meanwhile
    }
    config = check_config(document, NAME)
    network = load_network(load_model(str(file)), name, options.seed, precision=precision)
    return compiled(network, config, settings_of(config), options.trials, folder / precision)


def _decibels(answers: Mapping[str, Sequence[Any]]) -> dict[str, float]:
    """Of each runtime's outputs, against ONNX Runtime's in float32, or against ours where it is absent."""
    exact = answers.get("onnxruntime") or answers[f"autotune {FULL}"]
    return {label: signal_to_noise(exact, found) for label, found in answers.items() if found is not exact}


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.precisions", description=__doc__)
    parser.add_argument("--rows", help="comma-separated names; default: all")
    parser.add_argument("--files", help="comma-separated ONNX files in place of the rows; each is named by its file")
    parser.add_argument("--precisions", type=lambda text: text.split(","), default=["float32", "bfloat16"])
    parser.add_argument("--trials", type=int, default=0, help="measured candidates of ours; 0: the roofline's choice")
    parser.add_argument("--turns", type=int, default=20, help="turns of each runtime; 0: accuracy alone")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args(arguments)
    if unknown := [p for p in options.precisions if p not in PRECISIONS]:
        parser.error(f"`--precisions` must be among {', '.join(PRECISIONS)}, but got {unknown[0]!r}")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the comparison."""
    options = parse(arguments)
    try:
        files = [Path(file) for file in options.files.split(",")] if options.files else []
        if missing := [file for file in files if not file.is_file()]:
            raise ValueError(f"`files` must be ONNX files, but got {missing[0]}")
        chosen = [] if files else pick(options.rows, ROWS)
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    given = {file.stem.partition("-")[0]: file for file in files}
    for name in given or chosen:
        with tempfile.TemporaryDirectory(prefix="autotune-precisions-") as place:
            folder = Path(place)
            row = compare(name, given.get(name) or exported(name, folder, options.seed), folder, options)
        results.save(NAME, {"rows": {f"{name} {options.trials}": row}})
        shown = ", ".join(f"{label} {seconds * 1e3:.2f} ms" for label, seconds in row["seconds"].items())
        noise = ", ".join(f"{label} {ratio:.1f} dB" for label, ratio in row["decibels"].items())
        sys.stderr.write(f"{name}: {shown}; {noise}\n")
    saved = results.load(NAME)
    assert saved is not None
    sys.stdout.write(tables.precisions(saved) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
