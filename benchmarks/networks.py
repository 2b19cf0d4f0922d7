"""Comparison of networks with ONNX Runtime, OpenVINO and PyTorch, by trials and number of threads.

`python -m benchmarks.networks [--budget 0|10|1000] [--threads 2] [--rows NAME,...] [--minutes M]` prints the table, and
writes `benchmarks/results/networks_BUDGET_THREADS.json` once all rows of it are there; the same command resumes.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from autotune.compiler.mixed.chooser import DEFAULT
from benchmarks.collected import add_options, collect
from benchmarks.networks_table import networks
from benchmarks.precisions.__main__ import format_line
from benchmarks.precisions.compare import Plan, compare
from benchmarks.subjects import Subject
from targets import registry

LEARNED_FROM = (
    "alexnet", "bert_base", "convnext_tiny", "densenet121", "efficientnet_b0", "googlenet", "mobilenet_v2", "resnet50",
    "squeezenet1_0", "vgg16_bn",
)  # fmt: skip
"""Networks of the configurations, of the pools that the cost model has learned from, or of the shipped schedules."""
HELD_OUT = (
    "deeplabv3_mobilenet_v3_large", "beit_base_patch16_224", "cspdarknet53", "eva02_tiny_patch14_224", "levit_128s",
    "nasnetalarge", "sequencer2d_s", "vit_relpos_small_patch16_224", "dinov2_small", "squeezebert",
)  # fmt: skip
"""Networks that were not used to fill the database or to train the models.

They are every tenth model of the survey's list, from the fifth on, unless it was used. All of the survey's models were
used to test the compiler.
"""
NETWORKS = LEARNED_FROM + HELD_OUT
ROWS: Mapping[tuple[str, int], Sequence[str]] = {
    ("10", 2): NETWORKS[::2],
    ("1000", 2): NETWORKS[::4],
    ("0", 1): NETWORKS[::2],
}
"""Budget and threads → networks of the table; all of them otherwise."""
BUDGETS = {"0": (0, False), "10": (10, True), "1000": (1000, False)}
"""Budget → trials, and whether of each task: none; ten for each kernel; the number in ResNet-50's configuration."""


def make_plan(budget: str, threads: int, seed: int = 0, turns: int = 20) -> Plan:
    """Plans the measurements of each network.

    PyTorch's compiler is a peer without trials only: it has no budget, so one comparison is enough. The same holds for
    bfloat16, as a search would begin anew for it. It is skipped on processors without bfloat16 products, where
    OpenVINO's default computes in float32.
    """
    trials, each_task = BUDGETS[budget]
    has_products = "avx512bf16" in registry.get("cpu").hardware.features
    precisions = ("float32", "bfloat16") if not trials and has_products else ("float32",)
    return Plan(precisions, DEFAULT, trials, turns, seed, threads, inductor=trials == 0, each_task=each_task)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures the rows that are missing."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.networks", description=__doc__)
    add_options(parser)
    parser.add_argument("--budget", choices=BUDGETS, default="0", help="trials; 10: of each task")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args(arguments)
    plan = make_plan(options.budget, options.threads)
    name = f"networks_{options.budget}_{options.threads}"
    rows = ROWS.get((options.budget, options.threads), NETWORKS)

    def measure(network: str) -> dict[str, Any]:
        with tempfile.TemporaryDirectory(prefix="autotune-networks-") as place:
            return {**compare(Subject(network), Path(place), plan), "held_out": network in HELD_OUT}

    return collect(options, name, plan.to_json(), rows, measure, format_line, networks)


if __name__ == "__main__":
    sys.exit(main())
