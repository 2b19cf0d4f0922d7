"""The adapter of regressors that score a whole program at once, by the features of `features.program`."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.features.program import program_features, program_rows
from costmodel.models import roofline
from costmodel.models.base import Scores, UncertainModel
from costmodel.models.learner import Learner, Programs

Rows = NDArray[np.float64]  # (programs, features)
BLOCK = 256
"""Rows per call of `score`, always equal, so that a row's score does not depend on the number of other rows. The order
in which a matrix product adds up depends on its shape."""
CLIP = 6.0
"""Standard deviations from the mean at which features are cut off: a network knows nothing of values beyond."""


@dataclass(eq=False, kw_only=True)
class ProgramModel(Learner):
    """A base of regressors of throughput on standardised features of programs.

    A subclass defines its options as fields, its `name`, its `tunable` options, and `learn` and `score`.

    Attributes:
        seed: seed of all draws.
        programs: most programs of one task to learn from: the faster half, and a sample of the rest.
        tasks_programs: most programs of many tasks to learn from: a sample, equally many of each.
        prior: whether it learns, for one task, the difference from the roofline's throughput.
    """

    seed: int = field(default=0, kw_only=False)
    programs: int = 2048
    tasks_programs: int = 1_000_000
    prior: bool = True

    def __post_init__(self) -> None:
        for option, value in (("programs", self.programs), ("tasks_programs", self.tasks_programs)):
            if value < 1:
                raise ValueError(f"`{option}` must be at least 1, but got {option}={value}")

    @abstractmethod
    def learn(self, rows: Rows, target: Scores, weight: Scores) -> dict[str, Any]:
        """Learns, and returns the numbers and arrays that `score` needs.

        Args:
            rows: standardised features.
            target: throughput, or its difference from the prior's.
            weight: weight of each program, by its throughput.
        """

    @abstractmethod
    def score(self, rows: Rows) -> Scores:
        """Predicts the targets of `BLOCK` rows."""

    def predict(self, features: NDArray[np.float32]) -> Scores:
        return self.with_prior(features, self.scores(features, self.score))

    def scores(self, features: NDArray[np.float32], score: Callable[[Rows], Scores]) -> Scores:
        """Applies `score` to the standardised rows of candidates, `BLOCK` at a time: (..., candidates)."""
        learned = self.state
        rows = program_features(features)[learned["kept"]]  # (kept, candidates)
        blocks = []
        for start in range(0, max(len(features), 1), BLOCK):
            part = rows[:, start : start + BLOCK].T
            block = np.zeros((BLOCK, rows.shape[0]))
            block[: len(part)] = (part - learned["mean"]) / learned["deviation"]
            blocks.append(score(block)[..., : len(part)])
        return np.concatenate(blocks, axis=-1)

    def with_prior(self, features: NDArray[np.float32], scores: Scores) -> Scores:
        """Adds the roofline's throughput if the model has learned the difference from it."""
        scale = self.state["prior"]
        return scores + roofline.expected(roofline.speeds(features), scale) if scale else scores

    def train(self, programs: Programs) -> None:
        features, throughput = programs.features, programs.throughput
        rows = program_rows(features).astype(np.float64)
        weight = 0.1 + throughput
        scale, target = 0.0, throughput
        if self.prior and not programs.many:  # one scale does not fit many tasks
            speed = roofline.speeds(features)
            scale = roofline.fit_scale(speed, throughput, weight)
            target = throughput - roofline.expected(speed, scale)
        mean, deviation = rows.mean(axis=0), rows.std(axis=0)
        kept = np.flatnonzero(deviation > 1e-6)
        kept = kept if len(kept) else np.arange(1)
        standard = {"kept": kept, "mean": mean[kept], "deviation": np.maximum(deviation[kept], 1e-6), "prior": scale}
        rows = (rows[:, kept] - standard["mean"]) / standard["deviation"]
        found = {**standard, **self.learn(rows, target, weight)}
        # The layout equals that after loading: the order in which a matrix product adds up depends on it, too.
        self._state = {k: np.ascontiguousarray(v) if isinstance(v, np.ndarray) else v for k, v in found.items()}
        self.prepare(self._state)


class UncertainProgramModel(ProgramModel, UncertainModel):
    """A base of regressors that know the deviation of their scores."""

    @abstractmethod
    def score_with_deviation(self, rows: Rows) -> NDArray[np.float64]:
        """Predicts targets, as `score` does, and their standard deviations: (2, rows)."""

    def predict_with_deviation(self, features: NDArray[np.float32]) -> tuple[Scores, Scores]:
        score, deviation = self.scores(features, self.score_with_deviation)
        return self.with_prior(features, score), deviation


def clip_features(rows: Rows) -> Rows:
    """Limits standardised features to `CLIP` deviations, as a smooth model knows nothing farther out."""
    return np.clip(rows, -CLIP, CLIP)


def round_to_float32(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rounds to float32, in float64: in which order a library adds up depends on the processor and the shape."""
    return values.astype(np.float32).astype(np.float64)


def one_thread() -> Any:
    """Limits BLAS and OpenMP to one thread within a context: kernels are timed beside the models."""
    from threadpoolctl import threadpool_limits

    return threadpool_limits(1)


@contextmanager
def fitting() -> Iterator[None]:
    """Fits an estimator of scikit-learn on one thread; one that stops before it has converged ranks as well."""
    from sklearn.exceptions import ConvergenceWarning

    with one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield
