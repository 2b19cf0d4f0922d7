"""Accuracy and time of networks in float32, in bfloat16 and mixed, beside ONNX Runtime, OpenVINO and PyTorch.

`python -m benchmarks.precisions [--rows NAME,...] [--files A.onnx,...] [--precisions float32,bfloat16,mixed]
[--accuracy "as openvino"] [--trials 0] [--turns 20] [--inductor]` exports networks of the survey's list with random
weights, or takes files, and compiles each in every precision. It prints the table, and writes
`benchmarks/results/precisions.json` and `docs/precisions.png` once all rows are there. Accuracy is the signal to noise
of the outputs against ONNX Runtime: of the worst output, on two sets of inputs.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from autotune.compiler.mixed.chooser import AS_OPENVINO
from autotune.graph.precision import FULL
from autotune.modes import PRECISIONS
from autotune.units import latency
from benchmarks import results
from benchmarks.collected import add_picture, collect, find_picture
from benchmarks.precisions.compare import Plan, compare
from benchmarks.precisions.picture import draw
from benchmarks.precisions.table import precisions, title
from benchmarks.subjects import add_options, subjects

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

NAME = "precisions"


def format_line(row: Mapping[str, Any]) -> str:
    """Formats a row in a line."""
    entries = []
    for label in dict.fromkeys((*row["seconds"], *row["decibels"])):
        took = latency(row["seconds"][label]) if label in row["seconds"] else ""
        noise = f"{row['decibels'][label]:.1f} dB" if label in row["decibels"] else ""
        entries.append(f"{title(label, row)} {took} {noise}".strip())
    missing = [f"{title(label, row)} is missing: {why}" for label, why in row["missing"].items()]
    return ", ".join(entries) + "".join(f"; {text}" for text in missing)


def parse(arguments: Sequence[str] | None = None) -> tuple[argparse.Namespace, Plan]:
    """Parses the options of the command line, and makes the plan that they state."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.precisions", description=__doc__)
    add_options(parser)
    parser.add_argument("--precisions", type=lambda text: tuple(text.split(",")), default=(FULL, "bfloat16", "mixed"))
    parser.add_argument(
        "--accuracy", type=_accuracy, default=AS_OPENVINO, help=f"of mixed: decibels, or {AS_OPENVINO!r}"
    )
    parser.add_argument(
        "--inductor", action="store_true", help="PyTorch's compiler is a peer, too (a minute a network)"
    )
    add_picture(parser, "precisions.png")
    options = parser.parse_args(arguments)
    known = tuple(PRECISIONS)
    if unknown := [p for p in options.precisions if p not in known]:
        parser.error(f"`--precisions` must be among {', '.join(known)}, but got {unknown[0]!r}")
    ordered = tuple(p for p in known if p in options.precisions)  # mixed goes by the records of the others
    plan = Plan(
        ordered, options.accuracy, options.trials, options.turns, options.seed, options.threads, options.inductor
    )
    return options, plan


def _accuracy(text: str) -> float | str:
    if text == AS_OPENVINO:
        return text
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not value > 0:
        raise argparse.ArgumentTypeError(f"must be decibels above 0 or {AS_OPENVINO!r}, but got {text!r}")
    return value


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the comparison."""
    options, plan = parse(arguments)
    try:
        chosen = subjects(options.files, ROWS, options.results)
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return 2

    def measure(name: str) -> dict[str, Any]:
        with tempfile.TemporaryDirectory(prefix="autotune-precisions-") as place:
            return compare(chosen[name], Path(place), plan)

    code = collect(options, NAME, plan.to_json(), list(chosen), measure, format_line, precisions)
    saved = results.load(NAME, options.results)
    picture = find_picture(options)
    if code == 0 and saved is not None and picture is not None and draw(saved["rows"], picture):
        sys.stderr.write(f"{picture} is drawn\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
