"""Models that look at a whole program at once: regression of throughput on the features of `features.program`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from costmodel.features import SECONDS
from costmodel.features.program import program_features, program_rows
from costmodel.models import prior, text
from costmodel.models.base import Scores, need_fit
from costmodel.models.learner import Learner, Programs

Rows = NDArray[np.float64]  # (programs, features)
BLOCK = 256
"""Rows that are computed on at a time. The number is always the same, so that a row's score does not depend on how
many others there are: the order in which a matrix product adds up depends on its shape."""


class ProgramModel(Learner):
    """Base of regressors on standardised features of programs.

    What a subclass has learned is a dictionary of numbers and arrays, which `save` writes as it is: predictions after
    loading are equal to the last bit.

    Args:
        seed: of all draws.
        programs: greatest number of programs to learn one task from: the faster half, and of the rest a sample.
        tasks_programs: the same for many tasks: a sample, as many of each.
        prior: whether, of one task, it learns what is missing to the roofline's throughput.
    """

    name: ClassVar[str]

    def __init__(self, seed: int, programs: int, tasks_programs: int, prior: bool) -> None:
        for option, value in (("programs", programs), ("tasks_programs", tasks_programs)):
            if value < 1:
                raise ValueError(f"`{option}` must be at least 1, but got {option}={value}")
        self.seed, self.programs, self.tasks_programs, self.prior = seed, programs, tasks_programs, prior
        self._learned: dict[str, Any] | None = None

    def predict(self, features: NDArray[np.float32]) -> Scores:
        """See `CostModel.predict`."""
        return self.scores(features, self.score)

    def scores(self, features: NDArray[np.float32], score: Callable[[Rows], Scores], with_prior: bool = True) -> Scores:
        """What `score` makes of each candidate: (candidates, statements, features) → (candidates,).

        Args:
            features: of the candidates.
            score: called on `BLOCK` standardised rows at a time; several scores of each are (scores, `BLOCK`).
            with_prior: whether the roofline's throughput is added.
        """
        learned = need_fit(self._learned)
        rows = program_features(features)[learned["kept"]]  # (kept, candidates)
        found = []
        for start in range(0, len(features), BLOCK):
            part = rows[:, start : start + BLOCK].T
            block = np.zeros((BLOCK, rows.shape[0]))
            block[: len(part)] = (part - learned["mean"]) / learned["deviation"]
            found.append(score(block)[..., : len(part)])
        out = np.concatenate(found or [np.empty(0)], axis=-1)
        if with_prior and learned["prior"]:
            out = out + prior.expected(prior.roofline_speed(features[:, 0, SECONDS]), learned["prior"])
        return out

    def save(self, path: Path) -> None:
        """See `CostModel.save`."""
        text.write(path, self.name, need_fit(self._learned))

    def load(self, path: Path) -> None:
        """See `CostModel.load`."""
        self._learned = text.read(path, self.name)
        self.prepare(self._learned)

    @abstractmethod
    def learn(self, rows: Rows, target: Scores, weight: Scores) -> dict[str, Any]:
        """Numbers and arrays that `score` needs.

        Args:
            rows: standardised features.
            target: throughput, or what is missing to the prior's.
            weight: of each program, by its throughput.
        """

    @abstractmethod
    def score(self, rows: Rows) -> Scores:
        """Targets of `BLOCK` rows."""

    def prepare(self, learned: dict[str, Any]) -> None:
        """Makes what is not saved from what is, after fitting and after loading."""

    @property
    def learned(self) -> dict[str, Any]:
        """What `learn` returned, and how rows are standardised."""
        return need_fit(self._learned)

    def train(self, programs: Programs) -> None:
        """See `Learner.train`; many tasks without the prior, for one scale does not fit them."""
        features, throughput = programs.features, programs.throughput
        rows = program_rows(features).astype(np.float64)
        weight = 0.1 + throughput
        scale, target = 0.0, throughput
        if self.prior and not programs.many:
            speed = prior.speeds(features)
            scale = prior.scale_of(speed, throughput, weight)
            target = throughput - prior.expected(speed, scale)
        mean, deviation = rows.mean(axis=0), rows.std(axis=0)
        kept = np.flatnonzero(deviation > 1e-6)
        kept = kept if len(kept) else np.arange(1)
        standard = {"kept": kept, "mean": mean[kept], "deviation": np.maximum(deviation[kept], 1e-6), "prior": scale}
        rows = (rows[:, kept] - standard["mean"]) / standard["deviation"]
        found = {**standard, **self.learn(rows, target, weight)}
        # Laid out as they will be after loading: the order in which a matrix product adds up depends on that, too.
        self._learned = {k: np.ascontiguousarray(v) if isinstance(v, np.ndarray) else v for k, v in found.items()}
        self.prepare(self._learned)
