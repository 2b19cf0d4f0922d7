"""A search space of synthetic tables with an analytic landscape, and what else tuning needs, made up."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import autotune
from autotune.config import Measure, Model, Search
from autotune.tuner.result import TuneResult
from autotune.tuner.scorer import ModelScorer
from autotune.tuner.search import get
from autotune.tuner.settings import Settings
from autotune.tuner.task import Task
from autotune.tuner.task_tuning import TaskTuning
from costmodel.models.base import CostModel
from measure.errors import ErrorClass
from measure.outcome import Outcome
from measure.pool import MeasurePool, Trial, TrialResult
from search_space.hardware import Hardware
from search_space.schedule.trace import compute_key
from search_space.sketch.tables import DecisionGroup
from targets.registry import get as get_target

HARDWARE = Hardware("fake", 2, 64, 32, 1 << 15, 1 << 20, 1 << 25, 200e9, 40e9)


@dataclass(frozen=True)
class FakeTrace:
    """Numbers of a candidate."""

    steps: tuple[dict[str, Any], ...]

    def to_json(self) -> list[dict[str, Any]]:
        return list(self.steps)

    @property
    def key(self) -> str:
        return compute_key(self.to_json())

    def __str__(self) -> str:
        return str(self.steps)


@dataclass(frozen=True, eq=False)
class FakeSketch:
    """Tables of given lengths; a candidate is legal where the sum of its choices is at most `limit`."""

    name: str
    lengths: tuple[int, ...]
    best: tuple[int, ...]
    base: float = 1e-3
    limit: float = math.inf
    algorithm: str = "direct"
    program: None = None

    @property
    def groups(self) -> tuple[DecisionGroup, ...]:
        return tuple(
            DecisionGroup(f"g{i}", (f"v{i}",), np.arange(1, length + 1, dtype=np.int64)[:, None])
            for i, length in enumerate(self.lengths)
        )

    @property
    def size(self) -> int:
        return math.prod(self.lengths)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(f"v{i}" for i in range(len(self.lengths)))

    def expand(self, choices: np.ndarray) -> np.ndarray:
        return (choices + 1).T.astype(np.float64)

    def legal(self, choices: np.ndarray) -> np.ndarray:
        assert choices.shape[1] == len(self.lengths)
        return choices.sum(axis=1) <= self.limit

    def violations(self, choices: np.ndarray) -> dict[str, int]:
        broken = int((~self.legal(choices)).sum())
        return {"registers": broken} if broken else {}

    def workspace(self, choices: np.ndarray, threads: int) -> np.ndarray:
        """Bytes: more for smaller choices, so that the fastest is not the smallest."""
        return 64.0 * threads * (np.array(self.lengths) - choices).sum(axis=1)

    def trace(self, choice: Sequence[int]) -> FakeTrace:
        return FakeTrace(({"sketch": self.name, "values": [int(value) + 1 for value in choice]},))

    def seconds(self, choices: np.ndarray) -> np.ndarray:
        """The landscape: a bowl around `best`, smooth in the tables' order."""
        gap = (choices - np.array(self.best)) / np.array(self.lengths)
        return self.base * (1.0 + 8.0 * (gap**2).sum(axis=1) + 0.5 * np.abs(gap).max(axis=1, initial=0.0))


@dataclass(frozen=True)
class FakeWorkload:
    """A workload of some size."""

    name: str = "fake"
    flops: int = 10**8
    operator: str = "fake"
    algorithms: tuple[str, ...] = ("fake",)
    inputs: tuple[Any, ...] = ()

    @property
    def key(self) -> str:
        return f"fake(name={self.name})"

    @property
    def anchor(self) -> FakeWorkload:
        return self

    def to_json(self) -> dict[str, Any]:
        return {"operator": "fake", "args": {"name": self.name}}

    def count_flops(self, algorithm: str) -> float:
        return float(self.flops)


@dataclass(frozen=True)
class FakeSpace:
    """A search space with the members that strategies read."""

    sketches: tuple[FakeSketch, ...]
    workload: FakeWorkload = field(default_factory=FakeWorkload)
    hardware: Hardware = HARDWARE
    refusals: Mapping[str, str] = field(default_factory=dict)
    unmatched_rules: tuple[str, ...] = ()

    @property
    def cores(self) -> int:
        return self.hardware.cores

    def seconds(self, sketch: int, choices: Sequence[int]) -> float:
        return float(self.sketches[sketch].seconds(np.array([choices], np.int32).reshape(1, -1))[0])


def space(limit: float = math.inf) -> FakeSpace:
    """Three sketches: a large good one, a large bad one, and one of a single candidate."""
    return FakeSpace(
        (
            FakeSketch("good", (40, 30, 20, 10, 6), (31, 7, 12, 4, 2), limit=limit),
            FakeSketch("bad", (50, 40, 30), (10, 20, 5), base=3e-3, limit=limit),
            FakeSketch("call", (), (), base=2e-3),
        )
    )


def small() -> FakeSpace:
    """Two sketches of 12 and 1 candidates."""
    return FakeSpace((FakeSketch("tiny", (4, 3), (1, 1)), FakeSketch("call", (), ())))


def barren() -> FakeSpace:
    """No legal candidate, in a listed and in a sampled sketch."""
    return FakeSpace(
        (
            FakeSketch("tiny", (4, 3), (1, 1), limit=-1),
            FakeSketch("large", (90, 80, 70, 60), (0, 0, 0, 0), limit=-1),
        )
    )


def oracle(of: FakeSpace) -> Callable[[int, np.ndarray], np.ndarray]:
    """A scorer that knows the landscape."""

    def score(sketch: int, choices: np.ndarray) -> np.ndarray:
        return -np.log(of.sketches[sketch].seconds(choices))

    return score


class FakePool(MeasurePool):
    """Measures in no time: seconds by trace key out of the landscape, in a scrambled order.

    Args:
        of: the space.
        fails: tells of a trial whether it fails.
        on_results: told how many trials are measured, whenever one is.
    """

    def __init__(
        self,
        of: FakeSpace,
        fails: Callable[[Trial], bool] = lambda trial: False,
        on_results: Callable[[int], None] = lambda done: None,
    ) -> None:
        self.of, self.fails, self.on_results = of, fails, on_results
        self.trials: list[Trial] = []
        self._waiting: list[tuple[int, Trial]] = []
        self._submit_count = 0
        self.is_closed = False
        self._rng = np.random.default_rng(5)

    def submit(self, trials: Sequence[Trial]) -> None:
        for trial in trials:
            self._waiting.append((self._submit_count, trial))
            self._submit_count += 1

    def results(self, timeout: float | None = None) -> list[TrialResult]:
        if not self._waiting:
            return []
        index, trial = self._waiting.pop(int(self._rng.integers(len(self._waiting))))
        self.trials.append(trial)
        self.on_results(len(self.trials))
        if self.fails(trial):
            return [TrialResult(trial, index, Outcome(error=ErrorClass.wrong_output, message="is wrong"))]
        seconds = self.answer(trial)
        return [TrialResult(trial, index, Outcome((seconds,), seconds, spread=0.0, max_error=0.0))]

    def answer(self, trial: Trial) -> float:
        (step,) = trial.trace
        sketch = [s.name for s in self.of.sketches].index(step["sketch"])
        return self.of.seconds(sketch, [value - 1 for value in step["values"]])

    def cancel(self) -> None:
        self._waiting.clear()

    def close(self) -> None:
        self._waiting.clear()
        self.is_closed = True

    @property
    def outstanding(self) -> int:
        return len(self._waiting)


class HashPool(FakePool):
    """Answers trials of real workloads, each schedule with a latency that its key decides."""

    def __init__(self, on_results: Callable[[int], None] = lambda done: None) -> None:
        super().__init__(space(), on_results=on_results)

    def answer(self, trial: Trial) -> float:
        return make_seconds(trial.trace_key)


def make_seconds(trace_key: str) -> float:
    """Latency that the key of a schedule decides."""
    return 1e-3 + int(trace_key[:6], 16) * 1e-10


class FakeModel(CostModel):
    """A model that predicts for a candidate the value of the most similar measured one; counts its fits."""

    def __init__(self) -> None:
        self.fits: list[np.ndarray] = []

    def fit(self, features: Sequence[np.ndarray], throughput: np.ndarray) -> None:
        self._rows = np.stack([row[0] for row in features])
        self._throughput = np.asarray(throughput)
        self.fits.append(self._throughput)

    def predict(self, features: np.ndarray) -> np.ndarray:
        gaps = np.abs(features[:, 0, None] - self._rows[None]).sum(axis=2)
        return self._throughput[gaps.argmin(axis=1)] - 1e-3 * gaps.min(axis=1)

    def save(self, path: Any) -> None:
        raise NotImplementedError

    def load(self, path: Any) -> None:
        raise NotImplementedError


class FakeExtractor:
    """Features are the logarithms of the numbers, padded to eight, in one statement."""

    def __init__(self, program: Any, columns: Sequence[str], hardware: Hardware) -> None:
        self.rows = 0

    def __call__(self, columns: np.ndarray) -> np.ndarray:
        out = np.zeros((columns.shape[1], 1, 8), np.float32)
        out[:, 0, : len(columns)] = np.log2(columns.T)
        self.rows += len(out)
        return out

    def roofline(self, columns: np.ndarray) -> np.ndarray:
        return 1e-3 + 1e-5 * columns.sum(axis=0)


KEYS = {
    "search": (
        Search,
        {"strategy": "strategy", "strategy_options": "options", "batch": "batch", "finalists": "finalists"},
    ),
    "cost_model": (
        Model,
        {"cost_model": "name", "cost_model_options": "options", "features": "features", "exploration": "exploration"},
    ),
    "measure": (Measure, {"threads": "threads", "cache": "cache", "pool": "pool"}),
}
"""Section -> its class, and names in tests -> its keys."""


def sections(options: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of `autotune.tune` of values by names that differ over all sections."""
    rest = dict(options)
    found = {name: {keys[key]: rest.pop(key) for key in options if key in keys} for name, (_, keys) in KEYS.items()}
    return {**{name: KEYS[name][0](**values) for name, values in found.items() if values}, **rest}


def tune(workload: Any, **options: Any) -> TuneResult:
    """`autotune.tune` with the values of sections beside each other."""
    return autotune.tune(workload, **sections(options))


def settings_with(target: str = "cpu", **options: Any) -> Settings:
    """Settings with the values of sections beside each other, for one thread where nothing else is said."""
    return Settings(get_target(target), **sections({"threads": 1, **options}))


def tuning(
    of: FakeSpace, trials: int = 40, batch: int = 16, seed: int = 0, name: str = "fake", **options: Any
) -> TaskTuning:
    """A task on a fake space."""
    settings = settings_with(trials=trials, batch=batch, seed=seed, **{"finalists": 0, **options})
    scorer = ModelScorer(of, FakeModel(), settings.generator(name, "guide"), extractor=FakeExtractor)
    strategy = get(settings.search.strategy)(of, scorer, settings.generator(name, "search"))
    return TaskTuning(Task(name, of.workload), of, settings, strategy, scorer, {"cores": 2})
