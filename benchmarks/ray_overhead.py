"""Overhead of Ray: start-up, and milliseconds a trial beyond the pool `local`, both pools in turns.

`python -m benchmarks.ray_overhead` prints them for a kernel that does nothing and for products of matrices.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from measure.interface import Task
from measure.local import LocalPool
from measure.pool import MeasurePool, Trial
from measure.ray.pool import RayPool
from measure.ray.settings import RaySettings
from measure.settings import LocalSettings
from search_space import workloads
from search_space.space import generate
from targets import registry

TURNS = 9
TRIALS = 32


class Idle:
    """A kernel that does nothing."""

    copies = 1
    deterministic = False

    def __init__(self) -> None:
        self._output = np.zeros(4, np.float32)

    def run(self, threads: int | None = None) -> NDArray[Any]:
        self._output[...] = 0
        return self._output

    def feed(self, inputs: Sequence[NDArray[Any]], fill: int) -> None:
        pass

    def fetch(self) -> NDArray[Any]:
        return self._output

    def damage(self) -> str:
        return ""

    def time(self, iterations: int, threads: int | None = None) -> NDArray[np.float64]:
        self.run()
        return np.full(iterations, 1e-3)

    def metrics(self) -> dict[str, float]:
        return {}


class IdleExecutor:
    """An executor that builds and runs nothing."""

    def build(self, trial: Trial) -> bytes:
        return b""

    def prepare(self, trial: Trial) -> Task:
        return Task([], np.zeros(4, np.float32), 0.0, 0.0)

    def bind(self, trial: Trial, module: bytes, task: Task, copies: int) -> Idle:
        return Idle()


def main() -> None:
    """Measures and prints."""
    product = workloads.matmul(128, 128, 128)
    sketches = generate(product, registry.get("cpu").hardware).sketches
    rng = np.random.default_rng(0)
    trials: list[Trial] = []
    while len(trials) < TRIALS:
        sketch = sketches[rng.integers(len(sketches))]
        row = np.array([[rng.integers(len(group.table)) for group in sketch.groups]], np.int32)
        if sketch.legal(row)[0]:
            trials.append(Trial.of(product, sketch.algorithm, sketch.trace(row[0])))
    with tempfile.TemporaryDirectory() as folder:
        lock = str(Path(folder) / "lock")
        compare("nothing", trials, LocalSettings(executor=f"{__spec__.name}:{IdleExecutor.__name__}", host_lock=lock))
        compare("128 x 128 x 128", trials, LocalSettings(host_lock=lock))


def compare(title: str, trials: Sequence[Trial], settings: LocalSettings) -> None:
    """Prints Ray's overhead for `trials`."""
    start = time.perf_counter()
    with RayPool(settings=RaySettings(settings)) as on_ray, LocalPool(settings) as local:
        on_ray.run(trials[:1])
        ready = time.perf_counter() - start
        local.run(trials[:1])
        turns = [(milliseconds(local, trials), milliseconds(on_ray, trials)) for _ in range(TURNS)]
    ours = statistics.median(first for first, _ in turns)
    more = statistics.median(second - first for first, second in turns)
    print(f"{title:16} first result {ready:5.1f} s   local {ours:6.2f} ms a trial   Ray {more:+6.2f} ms")


def milliseconds(pool: MeasurePool, trials: Sequence[Trial]) -> float:
    """Measures milliseconds of wall time a trial."""
    start = time.perf_counter()
    results = pool.run(trials)
    assert all(result.ok for result in results), next(result.message for result in results if not result.ok)
    return (time.perf_counter() - start) / len(trials) * 1e3


if __name__ == "__main__":
    main()
