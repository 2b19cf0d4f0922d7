"""Comparison of the roofline's choice with other candidates of a layer.

`python -m benchmarks.choices [--targets cpu,cpu:haswell] [--rows NAME,...]` draws candidates of layers: the estimate's
first ones and others near them. It times all of them in turns, prints the table, and writes
`benchmarks/results/choices.json` once all rows are there. A processor is given by its name as long as this machine runs
its code.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.tuner.scorer import ModelScorer
from autotune.tuner.search.population import Frame, SeenCandidates
from autotune.tuner.search.sampling import LegalSampler
from autotune.units import share
from benchmarks.collected import add_options, collect
from benchmarks.markdown import table
from benchmarks.rows import ENDING, convolution
from costmodel.metrics import spearman
from costmodel.models.roofline import RooflineModel
from measure.hostlock import alone
from search_space import workloads
from search_space.space import SearchSpace, generate
from search_space.workloads import Workload
from targets import registry

NAME = "choices"
TARGETS = ("cpu", "cpu:haswell")
DRAWS = 1500
"""Candidates of each sketch that the estimate orders."""

FIRST = 6
"""Candidates that are timed because they come first; the first of all is the choice."""

SPREAD = 0.3
"""Standard deviation of the noise on the logarithm of estimates by which the others are chosen."""


def _conv(size: int, inputs: int, outputs: int, kernel: int = 1, stride: int = 1) -> Workload:
    return convolution(size, inputs, outputs, kernel, stride, **ENDING)


def _product(m: int, k: int, n: int) -> Workload:
    return workloads.matmul(m=m, n=n, k=k, constant_b=True)


ROWS: Mapping[str, Workload] = {
    "1x1 56² 256→64": _conv(56, 256, 64),
    "1x1 56² 64→256": _conv(56, 64, 256),
    "1x1 28² 512→128": _conv(28, 512, 128),
    "1x1 14² 1024→256": _conv(14, 1024, 256),
    "1x1 14² 256→1024": _conv(14, 256, 1024),
    "1x1 7² 2048→512": _conv(7, 2048, 512),
    "1x1 7² 512→2048": _conv(7, 512, 2048),
    "1x1 s2 28² 512→1024": _conv(28, 512, 1024, stride=2),
    "1x1 112² 16→96": _conv(112, 16, 96),
    "3x3 56² 64→64": _conv(56, 64, 64, 3),
    "3x3 28² 128→128": _conv(28, 128, 128, 3),
    "3x3 14² 256→256": _conv(14, 256, 256, 3),
    "3x3 7² 512→512": _conv(7, 512, 512, 3),
    "3x3 s2 56² 128→128": _conv(56, 128, 128, 3, 2),
    "7x7 s2 224² 3→64": _conv(224, 3, 64, 7, 2),
    "197x384→1536": _product(197, 384, 1536),
    "197x1536→384": _product(197, 1536, 384),
    "128x768→3072": _product(128, 768, 3072),
    "49x512→2048": _product(49, 512, 2048),
    "64x768→2304": _product(64, 768, 2304),
}
"""Layers of ResNet-50, MobileNet-V2, ViT-S, BERT, MLP-Mixer and GPT-2."""


class Candidates:
    """Candidates of a layer: those that the estimate puts first, and others near them.

    Args:
        space: search space of the layer.
        count: most candidates.
        seed: seed of every random draw.

    Attributes:
        estimates: seconds that the roofline expects (count,).
    """

    def __init__(self, space: SearchSpace, count: int, seed: int) -> None:
        rng, frame = np.random.default_rng(seed), Frame(space)
        scorer = ModelScorer(space, RooflineModel(), np.random.default_rng([seed, 1]), noise=0)
        drawn = LegalSampler(frame, SeenCandidates(), rng).spread(np.full(len(space.sketches), DRAWS, np.int64))
        scores = frame.score(drawn, scorer)
        noisy = np.argsort(-(scores + SPREAD * rng.standard_normal(len(scores))))
        chosen = list(dict.fromkeys([*np.argsort(-scores, kind="stable")[:FIRST], *noisy[:count]]))[:count]
        self.estimates: NDArray[np.float64] = np.exp(-scores[chosen])
        self._space, self._candidates = space, frame.candidates(drawn.take(np.array(chosen)))

    def time_candidates(self, workload: Workload, target: str, rounds: int) -> NDArray[np.float64]:
        """Times all candidates in turns, and returns the least seconds of each: (count,)."""
        built = [registry.get(target).build(self._space.program(found)) for found in self._candidates]
        inputs, took = workload.make_inputs(seed=0), np.full(len(built), np.inf)
        with alone():
            for _ in range(rounds):
                for place, module in enumerate(built):
                    bound = registry.get(target).load(module).bind(inputs)
                    bound.run()
                    took[place] = min(took[place], bound.time(4).min())
        return took


def measure_row(name: str, target: str, options: argparse.Namespace) -> dict[str, Any]:
    """Measures the row of a layer on a target."""
    workload = ROWS[name]
    candidates = Candidates(generate(workload, registry.get(target).hardware), options.candidates, options.seed)
    took = candidates.time_candidates(workload, target, options.rounds)
    return {
        "name": name,
        "target": target,
        "candidates": len(took),
        "choice_seconds": float(took[0]),
        "best_seconds": float(took.min()),
        "spearman": float(spearman(-candidates.estimates, -took)),
    }


def choices(document: Mapping[str, Any]) -> str:
    """Formats the table: a line for each layer, and the geometric mean of each target."""
    rows = list(document["rows"].values())
    lines = [
        (
            row["name"],
            row["target"],
            row["candidates"],
            f"{row['choice_seconds'] * 1e6:.0f}",
            f"{row['best_seconds'] * 1e6:.0f}",
            share(row["best_seconds"] / row["choice_seconds"]),
            f"{row['spearman']:.2f}",
        )
        for row in rows
    ]
    for target in dict.fromkeys(row["target"] for row in rows):
        ratios = [row["best_seconds"] / row["choice_seconds"] for row in rows if row["target"] == target]
        lines.append(
            (f"geometric mean over {len(ratios)}", target, "", "", "", share(np.exp(np.mean(np.log(ratios)))), "")
        )
    head = ("layer", "target", "candidates", "choice µs", "best µs", "best of choice", "rank correlation")
    return table(head, lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the comparison."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.choices", description=__doc__.partition("\n")[0])
    parser.add_argument("--targets", default=",".join(TARGETS), help=f"comma-separated; by default {','.join(TARGETS)}")
    add_options(parser)
    parser.add_argument("--candidates", type=int, default=24, help="that are timed of each layer")
    parser.add_argument("--rounds", type=int, default=3, help="in which each is timed")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    targets = options.targets.split(",")
    every = {f"{target} {name}": (name, target) for target in targets for name in ROWS}
    settings = {name: getattr(options, name) for name in ("targets", "candidates", "rounds", "seed")}

    def measure(row: str) -> dict[str, Any]:
        return measure_row(*every[row], options)

    def summarise(row: Mapping[str, Any]) -> str:
        return f"the choice is at {share(row['best_seconds'] / row['choice_seconds'])} of the best"

    return collect(options, NAME, settings, list(every), measure, summarise, choices)


if __name__ == "__main__":
    sys.exit(main())
