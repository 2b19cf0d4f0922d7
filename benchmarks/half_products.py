"""Ways to multiply 16-bit floats beside float32, on this processor.

`python -m benchmarks.half_products [--rows NAME,...]` times the candidates of each way that the estimate puts first, in
turns with those of float32, on one thread. It prints the table, and writes `benchmarks/results/half_products.json` once
all rows are there. Ways that the processor lacks, or that its rates leave out, are measured as if they were available.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from autotune.tuner.scorer import ModelScorer
from autotune.tuner.search.population import Frame, SeenCandidates
from autotune.tuner.search.sampling import LegalSampler
from benchmarks.collected import add_options, collect
from benchmarks.markdown import table
from costmodel.models.roofline import RooflineModel
from measure.hostlock import alone
from search_space import workloads
from search_space.hardware import Hardware
from search_space.intrinsics import BF16_DOT
from search_space.schedule.steps import Widen
from search_space.space import SearchSpace, Sketch, generate
from search_space.workloads import Workload
from targets import registry
from targets.base import Module

NAME = "half_products"
DRAWS = 1000
"""Candidates of each sketch that the estimate orders."""

ROWS: dict[str, Callable[[str], Workload]] = {
    "512x512x512": lambda dtype: workloads.matmul(512, 512, 512, dtype=dtype),
    "128x768→3072": lambda dtype: workloads.matmul(128, 3072, 768, dtype=dtype),
    "128x3072→768": lambda dtype: workloads.matmul(128, 768, 3072, dtype=dtype),
    "512x512x512, both computed": lambda dtype: workloads.matmul(512, 512, 512, dtype=dtype, constant_b=False),
    "3x3 28² 128→128": lambda dtype: workloads.conv2d(1, 28, 28, 128, 128, kernel=3, padding=1, dtype=dtype),
}
WAYS = ("float32", "bfloat16 dots", "bfloat16 widened", "bfloat16 each use", "float16 widened", "float16 each use")


def select_sketches(workload: Workload, way: str, hardware: Hardware) -> SearchSpace:
    """Derives the sketches of a workload whose products are computed in one way; none if the processor cannot."""
    features = tuple(f for f in hardware.features if f != BF16_DOT.feature)
    machine = hardware if way.endswith("dots") else replace(hardware, features=features)
    space = generate(workload, machine, workload.algorithms[:1])

    def is_wanted(sketch: Sketch) -> bool:
        steps = sketch.steps.steps
        widens = any(isinstance(step, Widen) for step in steps)
        dots = any(getattr(step, "intrinsic", "") == BF16_DOT.name for step in steps)
        return (widens, dots) == (way.endswith("widened"), way.endswith("dots"))

    return replace(space, sketches=tuple(filter(is_wanted, space.sketches)))


def build_first(space: SearchSpace, count: int, seed: int) -> list[Module]:
    """Builds the candidates that the estimate puts first."""
    if not space.sketches:
        return []
    frame = Frame(space)
    scorer = ModelScorer(space, RooflineModel(), np.random.default_rng([seed, 1]), noise=0)
    sampler = LegalSampler(frame, SeenCandidates(), np.random.default_rng(seed))
    drawn = sampler.spread(np.full(len(space.sketches), DRAWS, np.int64))
    order = np.argsort(-frame.score(drawn, scorer), kind="stable")[:count]
    return [registry.get("cpu").build(space.program(one)) for one in frame.candidates(drawn.take(order))]


def measure_row(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Measures the least seconds of each way to compute one product; None for a way that the processor lacks."""
    target = registry.get("cpu")
    seconds: dict[str, float | None] = dict.fromkeys(WAYS)
    modules: dict[str, list[Module]] = {}
    for way in WAYS:
        workload = ROWS[name](way.partition(" ")[0])
        space = select_sketches(workload, way, target.hardware.on(1))
        modules[way] = build_first(space, options.candidates, options.seed)
    with alone():
        for _ in range(options.rounds):
            for way, built in modules.items():
                inputs = ROWS[name](way.partition(" ")[0]).make_inputs(seed=0)
                for module in built:
                    bound = target.load(module).bind(inputs)
                    bound.run(1)
                    least = float(bound.time(4, 1).min())
                    seconds[way] = min(seconds[way] or least, least)
    return {"name": name, "flops": ROWS[name]("float32").flops, "seconds": seconds}


def half_products(document: Mapping[str, Any]) -> str:
    """Formats the table: GFLOP/s of float32, and the speed of each way relative to it."""
    lines = []
    for row in document["rows"].values():
        base, *others = (row["seconds"][way] for way in WAYS)
        ratios = ["" if seconds is None else f"{base / seconds:.2f}" for seconds in others]
        lines.append((row["name"], f"{row['flops'] / base / 1e9:.0f}", *ratios))
    return table(("product", "float32 GFLOP/s", *WAYS[1:]), lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the comparison."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.half_products", description=__doc__.partition("\n")[0])
    add_options(parser)
    parser.add_argument("--candidates", type=int, default=6, help="that are timed of each way")
    parser.add_argument("--rounds", type=int, default=10, help="in which each is timed")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    settings = {name: getattr(options, name) for name in ("candidates", "rounds", "seed")}

    def summarise(row: Mapping[str, Any]) -> str:
        return ", ".join(f"{way} {s * 1e6:.0f} µs" for way, s in row["seconds"].items() if s is not None)

    return collect(options, NAME, settings, list(ROWS), lambda row: measure_row(row, options), summarise, half_products)


if __name__ == "__main__":
    sys.exit(main())
