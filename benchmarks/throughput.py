"""Candidates a second that search makes, checks, compares, featurises and scores, on one core.

`python -m benchmarks.throughput [--batches 1024,32768] [--repeat 15]` writes
`benchmarks/results/throughput.json` and prints the table. Nothing is compiled or measured: the trees are
fitted on the roofline's estimates with noise.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from autotune.tuner.scorer import ModelScorer
from autotune.tuner.search import moves
from autotune.tuner.search.population import Frame, Population, SeenCandidates
from autotune.tuner.search.sampling import LegalSampler
from benchmarks import tables
from benchmarks.collected import add_options, collect
from costmodel.features import FeatureExtractor
from costmodel.models.lightgbm_model import LightGBMModel
from search_space import workloads
from search_space.space import SearchSpace, generate
from search_space.workloads import Workload
from targets import registry

NAME = "throughput"
TARGETS = {"roofline": 300_000, "lightgbm": 80_000}
"""Candidates a second that each scorer must reach."""
TRAINING_PROGRAMS = 512  # candidates that the trees learn from
POOLS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def workload() -> Workload:
    """Makes the convolution whose candidates are measured."""
    return workloads.conv2d(
        height=56, width=56, in_channels=64, out_channels=64, kernel=3, padding=1, bias=True, activation="relu"
    )


@contextmanager
def one_core() -> Iterator[int]:
    """Pins every thread of this process, those of libraries included, to one core; which one."""
    before = os.sched_getaffinity(0)
    limits = {name: os.environ.get(name) for name in POOLS}
    os.environ.update(dict.fromkeys(POOLS, "1"))  # for pools that are yet to be made
    try:
        _pin({max(before)})
        yield max(before)
    finally:
        _pin(before)
        for name, value in limits.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _pin(cores: set[int]) -> None:
    for thread in Path("/proc/self/task").iterdir():
        os.sched_setaffinity(int(thread.name), cores)


class Bench:
    """Candidates of one space through the code that search strategies are made of.

    Args:
        space: space of the candidates.
        seed: seed of every random draw.
    """

    def __init__(self, space: SearchSpace, seed: int = 0) -> None:
        self.space, self.frame = space, Frame(space)
        self.model = LightGBMModel(seed=seed)
        self.rng = np.random.default_rng(seed)
        self.scorer = ModelScorer(space, self.model, np.random.default_rng([seed, 1]))

    def learn(self, programs: int = TRAINING_PROGRAMS) -> None:
        """Fits the trees; from here on they score instead of the roofline."""
        population = self.draw(programs, SeenCandidates())
        noise = np.exp(0.3 * self.rng.standard_normal(len(population)))
        seconds = np.exp(-self.frame.score(population, self.scorer)) * noise
        self.scorer.observe(self.frame.candidates(population), seconds.tolist())
        self.scorer.refit()

    def draw(self, count: int, seen_keys: SeenCandidates) -> Population:
        """Draws about `count` random candidates, evenly over the sketches: distinct, legal, not seen."""
        sketches = len(self.space.sketches)
        sampler = LegalSampler(self.frame, seen_keys, self.rng)
        return sampler.spread(np.full(sketches, max(1, count // sketches), np.int64))

    def time_samples(self, count: int) -> dict[str, float]:
        """Times random candidates of `LegalSampler`: number of candidates, and seconds by stage."""
        seen, clock = SeenCandidates(), _Clock()
        drawn = self.draw(count, seen)
        seen.add(self.frame.keys(drawn))
        clock.stop("made")
        self.frame.score(drawn, self.scorer)
        clock.stop("scored")
        return {"candidates": len(drawn), **clock.seconds}

    def time_mutations(self, parents: Population) -> dict[str, float]:
        """Times children of `parents`, in the order of a generation of `Evolution`: candidates, and seconds by stage.

        Only children that are new and legal are scored and counted.
        """
        met, clock = SeenCandidates(), _Clock()
        met.add(self.frame.keys(parents))
        clock.stop("start")
        children = moves.mutate(parents, self.frame, self.rng)
        clock.stop("made")
        keys = self.frame.keys(children)
        children = children.take(met.fresh(keys))
        met.add(keys)
        clock.stop("told apart")
        children = children.take(self.frame.legal(children))
        clock.stop("checked")
        self.frame.score(children, self.scorer)
        clock.stop("scored")
        del clock.seconds["start"]
        return {"candidates": len(children), **clock.seconds}

    def trees(self) -> int:
        """Counts trees of the fitted model, in the file that it saves."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.txt"
            self.model.save(path)
            return path.read_text().count("\nTree=")

    def rows_of_features(self) -> float:
        """Counts statements of a candidate, which the trees score one by one: the mean over sketches."""
        counts = [
            len(FeatureExtractor(s.program, s.columns, self.space.hardware).statements) for s in self.space.sketches
        ]
        return float(np.mean(counts))


class _Clock:
    """Seconds since the last stop, by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def stop(self, name: str) -> None:
        now = time.perf_counter()
        self.seconds[name], self._last = now - self._last, now


def summarise_runs(runs: Sequence[dict[str, float]]) -> dict[str, Any]:
    """Computes the median rate of several runs, and microseconds a candidate by stage."""
    totals = [sum(v for name, v in run.items() if name != "candidates") for run in runs]
    rates = [run["candidates"] / total for run, total in zip(runs, totals, strict=True)]
    stages = [name for name in runs[0] if name != "candidates"]
    return {
        "candidates": int(median(run["candidates"] for run in runs)),
        "per_second": median(rates),
        "microseconds": {name: median(run[name] / run["candidates"] for run in runs) * 1e6 for name in stages},
    }


def measure_row(bench: Bench, scorer: str, kind: str, batch: int, repeat: int) -> dict[str, Any]:
    """Measures a row of the table: a scorer on random candidates or on mutated ones, so many at a time."""
    row: dict[str, Any] = {"scorer": scorer, "target": TARGETS[scorer], "kind": kind, "batch": batch}
    if scorer == "lightgbm":
        bench.learn()
        row |= {"trees": bench.trees(), "feature_rows": bench.rows_of_features()}
    parents = bench.draw(batch, SeenCandidates())
    run = {"sampled": lambda: bench.time_samples(batch), "mutated": lambda: bench.time_mutations(parents)}[kind]
    run()  # extractors are made and code is compiled on first use
    return {**row, **summarise_runs([run() for _ in range(repeat)])}


def sentence(row: Mapping[str, Any]) -> str:
    """Formats a row briefly."""
    return f"{row['per_second']:,.0f} candidates a second"


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses the options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.throughput", description=__doc__)
    add_options(parser)
    parser.add_argument(
        "--batches", default="1024,32768", help="candidates at a time: those of a generation of evolution, and many"
    )
    parser.add_argument("--repeat", type=int, default=15, help="batches; the median counts")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures on one core."""
    options = parse(arguments)
    layer = workload()
    space = generate(layer, registry.get("cpu").hardware)
    kinds = {
        f"{scorer}_{kind}_{batch}": (scorer, kind, int(batch))
        for scorer in TARGETS
        for batch in options.batches.split(",")
        for kind in ("sampled", "mutated")
    }
    settings = {
        "workload": layer.key,
        "sketches": len(space.sketches),
        "repeat": options.repeat,
        "seed": options.seed,
    }

    def measure(name: str) -> dict[str, Any]:
        with one_core():
            return measure_row(Bench(space, options.seed), *kinds[name], options.repeat)

    return collect(options, NAME, settings, list(kinds), measure, sentence, tables.throughput)


if __name__ == "__main__":
    sys.exit(main())
