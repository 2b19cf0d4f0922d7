"""A multi-layer perceptron on the features of programs."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from costmodel.models.base import Scores
from costmodel.models.program_model import ProgramModel, Rows
from costmodel.models.threads import one_thread
from costmodel.models.tunable import Range, Tunable

CLIP = 6.0
"""Deviations from the mean beyond which a feature says no more: a network knows nothing out there."""


class MLPModel(ProgramModel):
    """Two hidden layers of rectified units, trained by Adam on the squared error.

    Args:
        seed, programs, tasks_programs, prior: see `ProgramModel`.
        units: of the first hidden layer; the second has half as many.
        penalty: of the weights' squares, by program.
        learning_rate: of Adam.
        epochs: passes over the programs.
    """

    name = "mlp"
    tunable: ClassVar[Mapping[str, Tunable]] = {
        "units": Range(32, 256, log=True),
        "penalty": Range(1e-4, 0.3, log=True),
        "learning_rate": Range(1e-4, 1e-2, log=True),
        "epochs": Range(10, 60),
    }

    def __init__(
        self,
        seed: int = 0,
        units: int = 128,
        penalty: float = 0.004,
        learning_rate: float = 1e-3,
        epochs: int = 40,
        programs: int = 2048,
        tasks_programs: int = 1_000_000,
        prior: bool = True,
    ) -> None:
        super().__init__(seed, programs, tasks_programs, prior)
        if units < 2 or epochs < 1:
            raise ValueError(f"`units` must be at least 2 and `epochs` at least 1, but got units={units}, {epochs=}")
        self.units, self.penalty, self.learning_rate, self.epochs = units, penalty, learning_rate, epochs

    def learn(self, rows: Rows, target: Scores, weight: Scores) -> dict[str, Any]:
        """See `ProgramModel.learn`; every program weighs the same."""
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.neural_network import MLPRegressor

        middle, width = float(target.mean()), max(float(target.std()), 1e-3)
        network = MLPRegressor(
            hidden_layer_sizes=(self.units, self.units // 2),
            alpha=self.penalty * len(rows),
            batch_size=min(128, len(rows)),
            learning_rate_init=self.learning_rate,
            max_iter=self.epochs,
            n_iter_no_change=self.epochs,
            random_state=self.seed,
        )
        with one_thread(), warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # so many epochs are meant
            network.fit(np.clip(rows, -CLIP, CLIP).astype(np.float32), ((target - middle) / width).astype(np.float32))
        layers = zip(network.coefs_, network.intercepts_, strict=True)
        learned: dict[str, Any] = {"middle": middle, "width": width}
        return learned | {
            f"{name}{i}": np.asarray(value, np.float32)
            for i, layer in enumerate(layers)
            for name, value in zip(("weights", "bias"), layer, strict=True)
        }

    def score(self, rows: Rows) -> Scores:
        """See `ProgramModel.score`.

        Sums are in float64 and rounded to float32 behind each layer: in which order a library adds up depends on the
        processor and on how many rows there are, and a score must not depend on its company.
        """
        at = {name: np.asarray(value, np.float64) for name, value in self.learned.items()}
        values = _rounded(np.clip(rows, -CLIP, CLIP))
        for i in (0, 1):
            values = _rounded(np.maximum(values @ at[f"weights{i}"] + at[f"bias{i}"], 0.0))
        output = _rounded(values @ at["weights2"] + at["bias2"])[:, 0]
        found: Scores = output * at["width"] + at["middle"]
        return found


def _rounded(values: Scores) -> Scores:
    """Numbers of float32, in float64."""
    return values.astype(np.float32).astype(np.float64)
