"""Ridge regression on the features of programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from costmodel.models.base import Scores
from costmodel.models.program_model import ProgramModel, Rows, fitting
from costmodel.models.tunable import Range, Tunable


@dataclass(eq=False, kw_only=True)
class RidgeModel(ProgramModel):
    """Linear least squares with a penalty on the squares of the weights.

    Attributes:
        penalty: factor of the weights' squares, per program.
    """

    name = "ridge"
    tunable: ClassVar[Mapping[str, Tunable]] = {"penalty": Range(1e-4, 10.0, log=True)}

    programs: int = 4096
    penalty: float = 0.03

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.penalty > 0:
            raise ValueError(f"`penalty` must be positive, but got penalty={self.penalty}")

    def learn(self, rows: Rows, target: Scores, weight: Scores) -> dict[str, Any]:
        from sklearn.linear_model import Ridge

        with fitting():
            found = Ridge(alpha=self.penalty * len(rows), solver="cholesky").fit(rows, target, weight)
        return {"weights": np.asarray(found.coef_, np.float64), "intercept": float(found.intercept_)}

    def score(self, rows: Rows) -> Scores:
        found: Scores = rows @ self.state["weights"] + self.state["intercept"]
        return found
