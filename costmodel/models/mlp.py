"""A multi-layer perceptron on the features of programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from costmodel.models.base import Scores
from costmodel.models.program_model import ProgramModel, Rows, clip_features, fitting, round_to_float32
from costmodel.models.tunable import Range, Tunable


@dataclass(eq=False, kw_only=True)
class MLPModel(ProgramModel):
    """Two hidden layers of rectified units, trained by Adam on the squared error; every program weighs the same.

    Attributes:
        units: width of the first hidden layer; the second has half as many.
        penalty: factor of the weights' squares, per program.
        learning_rate: step size of Adam.
        epochs: passes over the programs.
    """

    name = "mlp"
    tunable: ClassVar[Mapping[str, Tunable]] = {
        "units": Range(32, 256, log=True),
        "penalty": Range(1e-4, 0.3, log=True),
        "learning_rate": Range(1e-4, 1e-2, log=True),
        "epochs": Range(10, 60),
    }

    units: int = 128
    penalty: float = 0.004
    learning_rate: float = 1e-3
    epochs: int = 40

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.units < 2 or self.epochs < 1:
            raise ValueError(
                f"`units` must be at least 2 and `epochs` at least 1, but got units={self.units}, epochs={self.epochs}"
            )

    def learn(self, rows: Rows, target: Scores, weight: Scores) -> dict[str, Any]:
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
        with fitting():
            network.fit(clip_features(rows).astype(np.float32), ((target - middle) / width).astype(np.float32))
        layers = zip(network.coefs_, network.intercepts_, strict=True)
        learned: dict[str, Any] = {"middle": middle, "width": width}
        return learned | {
            f"{name}{i}": np.asarray(value, np.float32)
            for i, layer in enumerate(layers)
            for name, value in zip(("weights", "bias"), layer, strict=True)
        }

    def score(self, rows: Rows) -> Scores:
        """Computes in float64 and rounds behind each layer, so that a score does not depend on its company."""
        at = {name: np.asarray(value, np.float64) for name, value in self.state.items()}
        values = round_to_float32(clip_features(rows))
        for i in (0, 1):
            values = round_to_float32(np.maximum(values @ at[f"weights{i}"] + at[f"bias{i}"], 0.0))
        output = round_to_float32(values @ at["weights2"] + at["bias2"])[:, 0]
        found: Scores = output * at["width"] + at["middle"]
        return found
