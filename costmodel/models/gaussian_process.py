"""Gaussian processes (Rasmussen and Williams, 2006) on the features of programs, fitted to a sample of them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from costmodel.models.base import Scores
from costmodel.models.program_model import CLIP, Rows, UncertainProgramModel, clip_features, fitting, one_thread
from costmodel.models.tunable import Range, Tunable

APART = 32
"""Number of features up to which each has a length scale of its own."""
FAR = 2.0
"""Standard deviations below the mean at which targets are clipped, those of failures, too. Programs far from the best
need not be distinguished, and would set the scale."""
LEAST, MOST = -6.0, 6.0
"""Bounds of logarithms of lengths, variances and noise."""
JITTER = 1e-6  # added to the noise, so that covariance matrices stay positive definite


@dataclass(eq=False, kw_only=True)
class ProcessModel(UncertainProgramModel):
    """A base of Gaussian processes: the posterior of a covariance that depends on scaled distances.

    All programs weigh the same; time grows with the cube of their number. The deviation is that of the true value,
    without the noise of measurement. `learn` returns `points`, `targets`, `middle`, `variance` and `noise` at least.

    Attributes:
        sample: programs that the covariance's scales are fitted on.
        length: prior length scale, in standard deviations of a feature.
    """

    jitter: ClassVar[float] = 0.0
    reach: ClassVar[float] = np.inf
    """Standard deviations from the mean at which features of rows are clipped."""

    sample: int = 192
    length: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.length > 0 or self.sample < 2:
            raise ValueError(
                f"`length` must be positive and `sample` at least 2, but got length={self.length}, sample={self.sample}"
            )

    @abstractmethod
    def scale_rows(self, rows: Rows) -> Rows:
        """Scales rows, so that their squared distances are those of the covariance."""

    @abstractmethod
    def covariance(self, squares: Rows) -> NDArray[np.float64]:
        """Computes covariances from squared distances."""

    def prepare(self, state: dict[str, Any]) -> None:
        """Solves for the weights of the points."""
        points = state["points"].astype(np.float64)
        self._points = self.scale_rows(points)  # may be `points` itself: BLAS computes half of its product with itself
        self._squares = (self._points**2).sum(axis=1)
        with one_thread():
            covariance = self._with_points(points)
            covariance[np.diag_indices_from(covariance)] += state["noise"] + self.jitter
            self._inverse = np.linalg.inv(np.linalg.cholesky(covariance))
            self._weights = self._inverse.T @ (self._inverse @ state["targets"])

    def score(self, rows: Rows) -> Scores:
        return self._mean(self._with_points(np.clip(rows, -self.reach, self.reach)))

    def score_with_deviation(self, rows: Rows) -> NDArray[np.float64]:
        covariance = self._with_points(np.clip(rows, -self.reach, self.reach))
        left = self.state["variance"] - ((covariance @ self._inverse.T) ** 2).sum(axis=1)
        return np.stack([self._mean(covariance), np.sqrt(np.maximum(left, 1e-12)) * self._spread])

    @property
    def _spread(self) -> float:
        return float(self.state.get("spread", 1.0))

    def _mean(self, covariance: NDArray[np.float64]) -> Scores:
        found: Scores = (covariance @ self._weights) * self._spread + self.state["middle"]
        return found

    def _with_points(self, rows: Rows) -> NDArray[np.float64]:
        """Computes the covariance of rows and points: (rows, points)."""
        scaled = self.scale_rows(rows)
        distances = (scaled**2).sum(axis=1)[:, None] + self._squares - 2 * (scaled @ self._points.T)
        return self.covariance(np.maximum(distances, 0.0))


@dataclass(eq=False, kw_only=True)
class GaussianProcessModel(ProcessModel):
    """A squared-exponential covariance with noise, whose scales maximise the likelihood."""

    name = "gaussian_process"
    tunable: ClassVar[Mapping[str, Tunable]] = {"length": Range(0.3, 3.0, log=True), "sample": Range(64, 384)}
    reach = CLIP

    programs: int = 512
    tasks_programs: int = 1536

    def learn(self, rows: Rows, target: Scores, weight: Scores) -> dict[str, Any]:
        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

        points, middle = clip_features(rows).astype(np.float32), float(target.mean())
        chosen = np.random.default_rng(self.seed).permutation(len(points))[: self.sample]
        guess = self.length * np.sqrt(points.shape[1])
        variance = max(float(target.var()), 1e-4)
        kernel = ConstantKernel(variance, (variance * 1e-2, variance * 1e2)) * RBF(
            guess, (guess * 0.1, guess * 10)
        ) + WhiteKernel(variance * 0.1, (variance * 1e-3, variance))
        process = GaussianProcessRegressor(kernel, random_state=self.seed)
        with fitting():
            process.fit(points[chosen].astype(np.float64), target[chosen] - middle)
        fitted = process.kernel_
        return {
            "points": points,
            "targets": target - middle,
            "middle": middle,
            "variance": float(fitted.k1.k1.constant_value),
            "length": float(fitted.k1.k2.length_scale),
            "noise": float(fitted.k2.noise_level),
        }

    def scale_rows(self, rows: Rows) -> Rows:
        return rows

    def covariance(self, squares: Rows) -> NDArray[np.float64]:
        at = self.state
        found: NDArray[np.float64] = at["variance"] * np.exp(-0.5 * squares / at["length"] ** 2)
        return found


@dataclass(eq=False, kw_only=True)
class MaternModel(ProcessModel):
    """A twice differentiable Matérn covariance (ν = 5/2) of one task's log throughput; the model for knobs.

    With few features, each has a length of its own; the scales maximise the posterior density.
    """

    name = "matern"
    tunable: ClassVar[Mapping[str, Tunable]] = {"length": Range(0.5, 5.0, log=True), "sample": Range(64, 256)}
    jitter = JITTER

    programs: int = 256
    tasks_programs: int = 1024
    prior: bool = field(default=False, init=False)
    sample: int = 128
    length: float = 1.5

    def learn(self, rows: Rows, target: Scores, weight: Scores) -> dict[str, Any]:
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

    def scale_rows(self, rows: Rows) -> Rows:
        found: Rows = rows / self.state["lengths"]
        return found

    def covariance(self, squares: Rows) -> NDArray[np.float64]:
        root = np.sqrt(5 * squares)
        found: NDArray[np.float64] = self.state["variance"] * (1 + root + root**2 / 3) * np.exp(-root)
        return found

    def _scales(self, rows: Rows, values: Scores) -> NDArray[np.float64]:
        """Fits logarithms of lengths, variance and noise, by gradient from their expected values."""
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
            """Computes the negative logarithm of the posterior density, and its gradient."""
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
            result = 0.5 * values @ weights + np.log(np.diag(lower)).sum() + 0.5 * (off**2).sum()
            outer = np.outer(weights, weights) - precision
            slope = np.empty_like(at)
            slope[:-2] = -0.5 * ((outer * (variance * 5 / 3 * (1 + root) * fall)).ravel() @ squares) * weight_of
            slope[-2] = -0.5 * (outer * smooth).sum()
            slope[-1] = -0.5 * noise * np.trace(outer)
            return float(result), slope + off / deviation

        bounds = [(LEAST, MOST)] * (len(expected) - 1) + [(np.log(1e-4), 0.0)]
        result = minimize(density, expected, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 40})
        scales: NDArray[np.float64] = result.x
        return scales
