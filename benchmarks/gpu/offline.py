"""Host costs of the search for GPU kernels, on one core and without a GPU: `python -m benchmarks.gpu.offline`.

Writes `benchmarks/results/gpu_offline.json`, for docs/benchmarks/gpus.md. Rows have kernels compiled to cubins a
second, the stages of that time, and candidates scored and checked a second. It takes a minute.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from statistics import median
from typing import Any, TypeVar

import numpy as np

from autotune.tuner.scorer import ModelScorer
from autotune.tuner.search.evolution import Evolution
from autotune.tuner.search.population import SeenCandidates
from benchmarks import results, table
from benchmarks.gpu.offline_table import offline
from benchmarks.provenance import EVERYWHERE
from benchmarks.rows import ENDING, convolution
from benchmarks.throughput import Bench, one_core
from costmodel.models.lightgbm_model import LightGBMModel
from measure.worker import GARBAGE
from search_space import workloads
from search_space.space import SearchSpace, generate, make_program
from search_space.workloads import Workload
from targets.cuda.nvrtc import compile_cubin, compile_ptx, version
from targets.cuda.program import DeviceProgram
from targets.cuda.program_text import emit_program
from targets.cuda.target import CudaTarget, get_target

T = TypeVar("T")
TARGET = 15_000
"""Candidates scored a second, on one core."""
WITHIN = ("ptx", "together")
"""Stages that no candidate takes besides the others: NVRTC's part up to PTX, and NVRTC on all of a workload at once."""
CANDIDATES = 6
"""Candidates compiled of each workload: the first ones of a search by the roofline, one of them at random."""
POPULATION = 2048


WORKLOADS: dict[str, Sequence[Callable[[], Workload]]] = {
    "float32 products": (
        lambda: workloads.matmul(1024, 1024, 1024, constant_b=False),
        lambda: workloads.matmul(16, 1000, 2048, constant_b=False),
    ),
    "float16 products": (
        lambda: workloads.matmul(1024, 1024, 1024, dtype="float16", constant_b=False),
        lambda: workloads.matmul(8, 8192, 1024, dtype="float16", constant_b=False),
    ),
    "convolutions": (
        lambda: convolution(56, 64, 64, 3, **ENDING),
        lambda: convolution(14, 256, 256, 3, **ENDING),
        lambda: convolution(7, 512, 2048, 1, **ENDING),
        lambda: convolution(28, 256, 512, 1, 2, batch=16, **ENDING),
    ),
    "windows": (
        lambda: workloads.depthwise_conv2d(height=112, width=112, channels=96, kernel=3, stride=2, padding=1),
        lambda: workloads.max_pool2d(height=112, width=112, channels=64, kernel=3, stride=2, padding=1),
    ),
    "row-wise": (
        lambda: workloads.softmax(rows=8192, columns=1024),
        lambda: workloads.layer_norm(rows=8192, columns=1024),
        lambda: workloads.reduce((4096, 16384), 1),
    ),
    "element-wise": (lambda: workloads.elementwise(function="gelu", shape=(1, 56, 56, 256)),),
}
SCORED_WORKLOADS: dict[str, Callable[[], Workload]] = {
    "matmul 1024³": WORKLOADS["float32 products"][0],
    "matmul 1024³ float16": WORKLOADS["float16 products"][0],
    "conv 3x3 14² 256→256": WORKLOADS["convolutions"][1],
    "softmax 8192x1024": WORKLOADS["row-wise"][0],
}


@dataclass
class Compilation:
    """Processor seconds that kernels took, by stage, in `kernels` functions of `candidates` candidates.

    Attributes:
        distinct: their texts.
        best: seconds of each stage, see `WITHIN`; of NVRTC's, the less of two runs.
    """

    candidates: int = 0
    kernels: int = 0
    distinct: set[str] = field(default_factory=set)
    best: dict[str, float] = field(default_factory=dict)

    def add(self, stage: str, seconds: float) -> None:
        self.best[stage] = self.best.get(stage, 0.0) + seconds

    def row(self) -> dict[str, Any]:
        """Converts it to a row: rates, and milliseconds of each stage for a candidate."""
        seconds = sum(value for stage, value in self.best.items() if stage not in WITHIN)
        return {
            "candidates": self.candidates,
            "kernels": self.kernels,
            "texts": len(self.distinct),
            "per_second": self.kernels / seconds,
            "candidates_per_second": self.candidates / seconds,
            "milliseconds": {stage: value / self.candidates * 1e3 for stage, value in self.best.items()},
        }

    def __iadd__(self, other: Compilation) -> Compilation:
        self.candidates, self.kernels = self.candidates + other.candidates, self.kernels + other.kernels
        self.distinct |= other.distinct
        for stage, seconds in other.best.items():
            self.add(stage, seconds)
        return self


def time_work(work: Callable[[], T], repeat: int = 1) -> tuple[T, float]:
    """Runs some work repeatedly, and returns its result and the least processor seconds."""
    seconds = []
    for _ in range(repeat):
        begun = time.process_time()
        found = work()
        seconds.append(time.process_time() - begun)
    return found, min(seconds)


def compile_candidates(workload: Workload, target: CudaTarget, count: int, seed: int) -> Compilation:
    """Compiles the first candidates of an evolutionary search."""
    space = generate(workload, target.hardware)
    scorer = ModelScorer(space, LightGBMModel(seed=seed), np.random.default_rng([seed, 1]))
    compilation = Compilation()
    devices: list[DeviceProgram] = []
    for index, candidate in enumerate(Evolution(space, scorer, np.random.default_rng(seed)).ask(count)):
        sketch = space.sketches[candidate.sketch]
        trace = sketch.trace(candidate.choices)
        program, seconds = time_work(lambda s=sketch, t=trace: make_program(workload, s.algorithm, t))
        compilation.add("lowered", seconds)
        device, seconds = time_work(lambda p=program, i=index: target.device_program(p, f"candidate{i}"))
        compilation.add("kernels", seconds)
        text, seconds = time_work(lambda d=device: emit_program(d))
        compilation.add("text", seconds)
        cubin, seconds = time_work(lambda t=text: compile_cubin(t, target.arch), 2)
        compilation.add("nvrtc", seconds)
        compilation.add("ptx", time_work(lambda t=text: compile_ptx(t, target.arch), 2)[1])
        compilation.distinct.add(text.replace(f"candidate{index}_", ""))
        compilation.candidates += 1
        compilation.kernels += len(cubin.resources)
        devices.append(device)
    together = emit_program(
        replace(
            devices[0],
            kernels=tuple(kernel for device in devices for kernel in device.kernels),
            prologues=tuple(prologue for device in devices for prologue in device.prologues),
        )
    )
    compilation.add("together", time_work(lambda: compile_cubin(together, target.arch), 2)[1])
    return compilation


def score_populations(space: SearchSpace, repeat: int, seed: int) -> dict[str, Any]:
    """Measures how fast trees score candidates and candidates are checked, on one core: medians of the rates."""
    bench = Bench(space, seed)
    bench.learn()
    population = bench.draw(POPULATION, SeenCandidates())
    rng = np.random.default_rng(seed)
    sketches = range(len(space.sketches))
    drawn = [bench.frame.of(sketch, bench.frame.uniform(sketch, POPULATION, rng)) for sketch in sketches]
    bench.frame.score(population, bench.scorer)  # code is compiled on first use
    scoring = [time_work(lambda: bench.frame.score(population, bench.scorer))[1] for _ in range(repeat)]
    checking = [time_work(lambda: [bench.frame.legal(each) for each in drawn])[1] for _ in range(repeat)]
    return {
        "candidates": len(population),
        "sketches": len(space.sketches),
        "trees": bench.trees(),
        "feature_rows": bench.rows_of_features(),
        "per_second": len(population) / median(scoring),
        "checked_per_second": POPULATION * len(drawn) / median(checking),
    }


def measure(target: CudaTarget, candidates: int, repeat: int, seed: int) -> dict[str, dict[str, Any]]:
    """Measures the rows of the table."""
    gc.set_threshold(GARBAGE)  # as in the processes that build
    compile_cubin('extern "C" __global__ void nothing() {}', target.arch)  # the library is loaded on first use
    rows: dict[str, dict[str, Any]] = {}
    overall = Compilation()
    for kind, makers in WORKLOADS.items():
        of = Compilation()
        for make in makers:
            of += compile_candidates(make(), target, candidates, seed)
        overall += of
        rows[f"compiled {kind}"] = {"work": "compiled", "what": kind, **of.row()}
    rows["compiled"] = {"work": "compiled", "what": "all", **overall.row()}
    for name, make in SCORED_WORKLOADS.items():
        found = score_populations(generate(make(), target.hardware), repeat, seed)
        rows[f"scored {name}"] = {"work": "scored", "what": name, "target": TARGET, **found}
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures on one core, and writes results and table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.offline", description=__doc__)
    parser.add_argument("--arch", default="sm_90", help="architecture that is compiled for")
    parser.add_argument("--candidates", type=int, default=CANDIDATES, help="compiled of each workload")
    parser.add_argument("--repeat", type=int, default=9, help="populations scored and checked; the median counts")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dry", action="store_true", help="print the table and write nothing")
    options = parser.parse_args(arguments)
    target = get_target(f"cuda:{options.arch}")
    with one_core():
        rows = measure(target, options.candidates, options.repeat, options.seed)
    document = {
        "date": datetime.now(UTC).date().isoformat(),
        "arch": options.arch,
        "nvrtc": version(),
        "population": POPULATION,
        "rows": rows,
    }
    if not options.dry:
        results.save("gpu_offline", document, measured_paths=EVERYWHERE)
        table.main([])
    sys.stdout.write(offline(document) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
