"""A Gaussian process with a Matérn covariance (Rasmussen and Williams, 2006), a length for each feature where there are
few: the model for knobs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from costmodel.models.base import Scores, UncertainModel
from costmodel.models.program_model import ProgramModel, Rows
from costmodel.models.threads import one_thread
from costmodel.models.tunable import Range, Tunable

APART = 32
"""Features up to which each has a length of its own."""
FAR = 2.0
"""Standard deviations below the mean at which the slow ones, and failures, are all taken for equal: what is far from
the best need not be told apart, and would set the scale."""
LEAST, MOST = -6.0, 6.0
"""Of logarithms of lengths, variances and noise."""
JITTER = 1e-6


class MaternModel(ProgramModel, UncertainModel):
    """Learns log throughput of one task; twice differentiable covariance (ν = 5/2), noise, scales of the greatest
    posterior density.

    Args:
        seed: see `ProgramModel`.
        programs, tasks_programs: see `ProgramModel`; time goes with their cube.
        sample: programs that the scales are fitted on.
        length: median of the lengths before anything is known, in standard deviations of a feature.
    """

    name = "matern"
    tunable: ClassVar[Mapping[str, Tunable]] = {"length": Range(0.5, 5.0, log=True), "sample": Range(64, 256)}

    def __init__(
        self, seed: int = 0, programs: int = 256, tasks_programs: int = 1024, sample: int = 128, length: float = 1.5
    ) -> None:
        super().__init__(seed, programs, tasks_programs, prior=False)
        if not length > 0 or sample < 2:
            raise ValueError(f"`length` must be positive and `sample` at least 2, but got length={length}, {sample=}")
        self.sample, self.length = sample, length

    def learn(self, rows: Rows, target: Scores, weight: Scores) -> dict[str, Any]:
        """See `ProgramModel.learn`; every program weighs the same."""
        worked = target > 0
        logarithms = np.log2(np.where(worked, target, target[worked].min(initial=1.0)))
        middle, spread = float(logarithms.mean()), max(float(logarithms.std()), 1e-6)
        values = np.maximum((logarithms - middle) / spread, -FAR)
        chosen = np.random.default_rng(self.seed).permutation(len(rows))[: self.sample]
        with one_thread():
            scales = self._scales(rows[chosen], values[chosen])
        lengths, variance, noise = np.exp(scales[:-2]), float(np.exp(scales[-2])), float(np.exp(scales[-1]))
        return {
            "points": rows.astype(np.float32),
            "targets": values,
            "middle": middle,
            "spread": spread,
            "lengths": np.broadcast_to(lengths, rows.shape[1:]).astype(np.float64),
            "variance": variance,
            "noise": noise,
        }

    def _scales(self, rows: Rows, values: Scores) -> NDArray[np.float64]:
        """Logarithms of lengths, variance and noise, by gradient from what is expected of them."""
        from scipy.optimize import minimize

        apart = rows.shape[1] <= APART
        far = np.sqrt(1 if apart else rows.shape[1])  # distances of unlike programs grow with the features
        count = rows.shape[1] if apart else 1
        expected = np.concatenate([np.full(count, np.log(self.length * far)), [0.0, np.log(1e-2)]])
        deviation = np.concatenate([np.full(count, 1.0), [1.0, 1.5]])
        apart_by = (rows[:, None, :] - rows[None, :, :]) ** 2  # (n, n, features)
        squares = (apart_by if apart else apart_by.sum(axis=2)).reshape(len(rows) ** 2, count)
        shape, identity = (len(rows), len(rows)), np.eye(len(rows))

        def density(at: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
            """Negative logarithm of the posterior density, and its gradient."""
            weight_of = np.exp(-2 * at[:-2])
            variance, noise = np.exp(at[-2]), np.exp(at[-1])
            root = np.sqrt(5 * (squares @ weight_of)).reshape(shape)
            fall = np.exp(-root)
            smooth = variance * (1 + root + root**2 / 3) * fall
            lower = np.linalg.cholesky(smooth + (noise + JITTER) * identity)
            inverse = np.linalg.inv(lower)
            precision = inverse.T @ inverse
            weights = precision @ values
            off = (at - expected) / deviation
            found = 0.5 * values @ weights + np.log(np.diag(lower)).sum() + 0.5 * (off**2).sum()
            outer = np.outer(weights, weights) - precision
            slope = np.empty_like(at)
            slope[:-2] = -0.5 * ((outer * (variance * 5 / 3 * (1 + root) * fall)).ravel() @ squares) * weight_of
            slope[-2] = -0.5 * (outer * smooth).sum()
            slope[-1] = -0.5 * noise * np.trace(outer)
            return float(found), slope + off / deviation

        bounds = [(LEAST, MOST)] * (len(expected) - 1) + [(np.log(1e-4), 0.0)]
        found = minimize(density, expected, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 40})
        scales: NDArray[np.float64] = found.x
        return scales

    def prepare(self, learned: dict[str, Any]) -> None:
        """Solves for the weights of the points."""
        self._points = learned["points"].astype(np.float64) / learned["lengths"]
        self._squares = (self._points**2).sum(axis=1)
        with one_thread():
            covariance = self._covariance(learned["points"].astype(np.float64))
            covariance[np.diag_indices_from(covariance)] += learned["noise"] + JITTER
            self._inverse = np.linalg.inv(np.linalg.cholesky(covariance))
            self._weights = self._inverse.T @ (self._inverse @ learned["targets"])

    def score(self, rows: Rows) -> Scores:
        """See `ProgramModel.score`: log2 of the throughput."""
        at = self.learned
        found: Scores = (self._covariance(rows) @ self._weights) * at["spread"] + at["middle"]
        return found

    def predict_with_deviation(self, features: NDArray[np.float32]) -> tuple[Scores, Scores]:
        """See `UncertainModel`; the deviation of what would be measured, without the noise of measuring."""
        if not len(features):
            return np.empty(0), np.empty(0)
        score, deviation = self.scores(features, self._with_deviation, with_prior=False)
        return score, deviation

    def _with_deviation(self, rows: Rows) -> Scores:
        """Score and deviation of each row: (2, rows)."""
        at, covariance = self.learned, self._covariance(rows)
        score = (covariance @ self._weights) * at["spread"] + at["middle"]
        left = at["variance"] - ((covariance @ self._inverse.T) ** 2).sum(axis=1)
        return np.stack([score, np.sqrt(np.maximum(left, 1e-12)) * at["spread"]])

    def _covariance(self, rows: Rows) -> NDArray[np.float64]:
        """Of rows and points: (rows, points)."""
        scaled = rows / self.learned["lengths"]
        distances = (scaled**2).sum(axis=1)[:, None] + self._squares - 2 * (scaled @ self._points.T)
        root = np.sqrt(5 * np.maximum(distances, 0.0))
        found: NDArray[np.float64] = self.learned["variance"] * (1 + root + root**2 / 3) * np.exp(-root)
        return found
