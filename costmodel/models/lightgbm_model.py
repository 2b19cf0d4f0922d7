"""Gradient-boosted trees whose loss is on the sum of a program's statement scores (Ansor, OSDI 2020)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.features import SECONDS
from costmodel.models.base import CostModel, need_fit
from costmodel.models.booster import boost
from costmodel.models.forest import MAX_LEAVES, Forest

MAX_PRIOR = 1.25
LEAST_TREES = 8
NO_TREES = "tree"
_PRIOR = "roofline_prior="
Gradients = tuple[NDArray[np.float64], NDArray[np.float64]]


class LightGBMModel(CostModel):
    """Regression of throughput; a program's score is the sum over its statements.

    Deterministic: the same measurements in the same order give the same trees.

    Args:
        seed: of the sampling of features and of programs.
        trees: at most; half as many as programs, and no fewer than 8, where there are few.
        leaves, learning_rate, feature_share, bins: of the boosting.
        base_weight: what a program of throughput 0 weighs in the loss; one of throughput y weighs y more.
        prior: whether the trees learn what is missing to the roofline's throughput, scaled to the
            measurements. It makes a few measurements enough, where all are of one task.
        programs: greatest number of programs to learn from, so that a refit's cost has a bound: the faster half of
            them, and of the rest a sample.
    """

    def __init__(
        self,
        seed: int = 0,
        trees: int = 100,
        leaves: int = 16,
        learning_rate: float = 0.1,
        feature_share: float = 0.25,
        bins: int = 63,
        base_weight: float = 0.1,
        prior: bool = True,
        programs: int = 2048,
    ) -> None:
        if not 2 <= leaves <= MAX_LEAVES:
            raise ValueError(f"`leaves` must be from 2 to {MAX_LEAVES}, but got leaves={leaves}")
        self.seed, self.trees, self.base_weight, self.programs = seed, trees, base_weight, programs
        self.prior, self._scale = prior, 0.0
        self._parameters: dict[str, Any] = {
            "num_leaves": leaves,
            "learning_rate": learning_rate,
            "feature_fraction": feature_share,
            "max_bin": bins,
            "min_data_in_leaf": 3,
            "min_data_in_bin": 1,
            "min_sum_hessian_in_leaf": 1e-3,
            "enable_bundle": False,
            "feature_pre_filter": False,
            "use_missing": False,
            "num_threads": 1,
            "deterministic": True,
            "force_col_wise": True,
            "seed": seed,
            "verbose": -1,
        }
        self._text: str | None = None
        self._forest: Forest | None = None

    def fit(self, features: Sequence[NDArray[np.float32]], throughput: NDArray[np.float64]) -> None:
        """See `CostModel.fit`; learns from scratch, for throughput is relative to a best that changes."""
        if len(features) != len(throughput):
            raise ValueError(
                f"`throughput` must have one entry a program, but got programs={len(features)}, "
                f"throughput={len(throughput)}"
            )
        if not len(features):
            return
        chosen = self._choose(np.asarray(throughput, np.float64))
        target = np.asarray(throughput, np.float64)[chosen]
        weight = self.base_weight + target
        speed = _roofline(np.array([features[i][0, SECONDS] for i in chosen]))
        self._scale = float((weight * speed * target).sum() / (weight * speed**2).sum()) if self.prior else 0.0
        counts = np.array([len(features[i]) for i in chosen])
        loss = SumLoss(counts, target - self._expected(speed), weight)
        rows = np.concatenate([features[i] for i in chosen])
        if (rows == rows[0]).all():
            self._learned(NO_TREES)  # LightGBM refuses data in which no feature varies
            return
        trees = min(self.trees, max(LEAST_TREES, len(chosen) // 2))
        self._learned(boost(rows, loss, self._parameters, trees))

    def predict(self, features: NDArray[np.float32]) -> NDArray[np.float64]:
        """See `CostModel.predict`."""
        forest = need_fit(self._forest)
        by_statement = features.transpose(1, 2, 0)  # (statements, features, n)
        scores: NDArray[np.float64] = np.sum([forest.predict(rows) for rows in by_statement], axis=0)
        return scores + self._expected(_roofline(features[:, 0, SECONDS]))

    def save(self, path: Path) -> None:
        """Writes LightGBM's own text format, and a last line with the prior's scale."""
        path.write_text(f"{need_fit(self._text)}\n{_PRIOR}{self._scale!r}\n")

    def load(self, path: Path) -> None:
        """Reads what `save` wrote, or a model of LightGBM's own."""
        text, _, scale = path.read_text().partition(f"\n{_PRIOR}")
        self._scale = float(scale or 0.0)
        self._learned(text)

    def _learned(self, text: str) -> None:
        self._text, self._forest = text, Forest.from_lightgbm(text)

    def _expected(self, speed: NDArray[np.float64]) -> NDArray[np.float64]:
        """Throughput by the roofline alone; little more than 1 at most, whatever it promises."""
        return np.minimum(speed * self._scale, MAX_PRIOR)

    def _choose(self, throughput: NDArray[np.float64]) -> NDArray[np.int64]:
        """Indices of the programs to learn from, ascending."""
        if len(throughput) <= self.programs:
            return np.arange(len(throughput))
        order = np.argsort(-throughput, kind="stable")
        fast, rest = order[: self.programs // 2], order[self.programs // 2 :]
        rng = np.random.default_rng(self.seed)
        drawn = rng.choice(rest, self.programs - len(fast), replace=False)
        return np.sort(np.concatenate([fast, drawn]))


def _roofline(log_nanoseconds: NDArray[np.float32]) -> NDArray[np.float64]:
    """Programs a nanosecond, from log2(1 + nanoseconds)."""
    return np.exp2(-log_nanoseconds.astype(np.float64))


class SumLoss:
    """Weighted squared error of the sum of a program's statement scores, as LightGBM wants an objective.

    Args:
        counts: statements of each program, (programs,).
        target: throughput, (programs,).
        weight: of each program in the loss, (programs,).
    """

    def __init__(self, counts: NDArray[np.int64], target: NDArray[np.float64], weight: NDArray[np.float64]) -> None:
        self.counts, self.target, self.weight = counts, target, weight
        self._program = np.repeat(np.arange(len(counts)), counts)  # (rows,)

    def __call__(self, scores: NDArray[np.float64]) -> Gradients:
        """Gradient and curvature by row; as a program's statements step together, the latter counts them."""
        sums = np.bincount(self._program, scores, minlength=len(self.counts))
        gradient = self.weight * (sums - self.target)
        return gradient[self._program], (self.weight * self.counts)[self._program]
