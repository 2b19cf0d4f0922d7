"""A Gaussian process (Rasmussen and Williams, 2006) on the features of programs, by a sample of them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from costmodel.models.base import Scores, UncertainModel
from costmodel.models.program_model import ProgramModel, Rows
from costmodel.models.threads import one_thread
from costmodel.models.tunable import Range, Tunable

CLIP = 6.0


class GaussianProcessModel(ProgramModel, UncertainModel):
    """Squared-exponential covariance and noise, whose scales maximise the likelihood.

    Args:
        seed, prior: see `ProgramModel`.
        programs, tasks_programs: see `ProgramModel`; time goes with their cube.
        sample: programs that the covariance's scales are fitted on.
        length: first guess of the length scale, in standard deviations of a feature.
    """

    name = "gaussian_process"
    tunable: ClassVar[Mapping[str, Tunable]] = {"length": Range(0.3, 3.0, log=True), "sample": Range(64, 384)}

    def __init__(
        self,
        seed: int = 0,
        programs: int = 512,
        tasks_programs: int = 1536,
        sample: int = 192,
        length: float = 1.0,
        prior: bool = True,
    ) -> None:
        super().__init__(seed, programs, tasks_programs, prior)
        if not length > 0 or sample < 2:
            raise ValueError(f"`length` must be positive and `sample` at least 2, but got length={length}, {sample=}")
        self.sample, self.length = sample, length

    def learn(self, rows: Rows, target: Scores, weight: Scores) -> dict[str, Any]:
        """See `ProgramModel.learn`; every program weighs the same."""
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

        points, middle = np.clip(rows, -CLIP, CLIP).astype(np.float32), float(target.mean())
        chosen = np.random.default_rng(self.seed).permutation(len(points))[: self.sample]
        guess = self.length * np.sqrt(points.shape[1])
        variance = max(float(target.var()), 1e-4)
        kernel = ConstantKernel(variance, (variance * 1e-2, variance * 1e2)) * RBF(
            guess, (guess * 0.1, guess * 10)
        ) + WhiteKernel(variance * 0.1, (variance * 1e-3, variance))
        process = GaussianProcessRegressor(kernel, random_state=self.seed)
        with one_thread(), warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # a scale at its bound is a scale too
            process.fit(points[chosen].astype(np.float64), target[chosen] - middle)
        found = process.kernel_
        return {
            "points": points,
            "targets": target - middle,
            "middle": middle,
            "variance": float(found.k1.k1.constant_value),
            "length": float(found.k1.k2.length_scale),
            "noise": float(found.k2.noise_level),
        }

    def prepare(self, learned: dict[str, Any]) -> None:
        """Solves for the weights of the points."""
        self._points = learned["points"].astype(np.float64)
        self._squares = (self._points**2).sum(axis=1)
        with one_thread():
            covariance = self._covariance(self._points)
            covariance[np.diag_indices_from(covariance)] += learned["noise"]
            lower = np.linalg.cholesky(covariance)
            self._inverse = np.linalg.inv(lower)
            self._weights = self._inverse.T @ (self._inverse @ learned["targets"])

    def score(self, rows: Rows) -> Scores:
        """See `ProgramModel.score`."""
        found: Scores = self._covariance(np.clip(rows, -CLIP, CLIP)) @ self._weights + self.learned["middle"]
        return found

    def predict_with_deviation(self, features: NDArray[np.float32]) -> tuple[Scores, Scores]:
        """See `UncertainModel`; the deviation of what would be measured, without the noise of measuring."""
        return self.predict(features), self.scores(features, self._deviation, with_prior=False)

    def _deviation(self, rows: Rows) -> Scores:
        known = self._covariance(np.clip(rows, -CLIP, CLIP)) @ self._inverse.T
        found: Scores = np.sqrt(np.maximum(self.learned["variance"] - (known**2).sum(axis=1), 1e-12))
        return found

    def _covariance(self, rows: Rows) -> NDArray[np.float64]:
        """Of rows and points: (rows, points)."""
        distances = (rows**2).sum(axis=1)[:, None] + self._squares - 2 * (rows @ self._points.T)
        at = self.learned
        found: NDArray[np.float64] = at["variance"] * np.exp(-0.5 * np.maximum(distances, 0) / at["length"] ** 2)
        return found
