"""Ridge regression on the features of programs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from costmodel.models.base import Scores
from costmodel.models.program_model import ProgramModel, Rows
from costmodel.models.threads import one_thread
from costmodel.models.tunable import Range, Tunable


class RidgeModel(ProgramModel):
    """Linear least squares with a penalty on the squares of the weights.

    Args:
        seed, programs, tasks_programs, prior: see `ProgramModel`.
        penalty: of the weights' squares, by program.
    """

    name = "ridge"
    tunable: ClassVar[Mapping[str, Tunable]] = {"penalty": Range(1e-4, 10.0, log=True)}

    def __init__(
        self,
        seed: int = 0,
        penalty: float = 0.03,
        programs: int = 4096,
        tasks_programs: int = 1_000_000,
        prior: bool = True,
    ) -> None:
        super().__init__(seed, programs, tasks_programs, prior)
        if not penalty > 0:
            raise ValueError(f"`penalty` must be positive, but got penalty={penalty}")
        self.penalty = penalty

    def learn(self, rows: Rows, target: Scores, weight: Scores) -> dict[str, Any]:
        """See `ProgramModel.learn`."""
        from sklearn.linear_model import Ridge

        with one_thread():
            found = Ridge(alpha=self.penalty * len(rows), solver="cholesky").fit(rows, target, weight)
        return {"weights": np.asarray(found.coef_, np.float64), "intercept": float(found.intercept_)}

    def score(self, rows: Rows) -> Scores:
        """See `ProgramModel.score`."""
        found: Scores = rows @ self.learned["weights"] + self.learned["intercept"]
        return found
