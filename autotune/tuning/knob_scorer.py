"""A scorer whose model sees the values of decisions, alone or beside the features of loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.tuning.scorer import ModelScorer
from costmodel.features import SECONDS, FeatureExtractor
from costmodel.features.knobs import KnobFeatures
from costmodel.models.base import CostModel
from search_space.space import SearchSpace


class KnobScorer(ModelScorer):
    """See `ModelScorer`. Before there is data, the roofline is what it goes by, too.

    Args:
        space, model, rng, noise, extractor, exploration: see `ModelScorer`.
        loops: whether the model sees the features of loops, too.
    """

    def __init__(
        self,
        space: SearchSpace,
        model: CostModel,
        rng: np.random.Generator,
        noise: float = 0.2,
        extractor: Callable[..., Any] = FeatureExtractor,
        exploration: float = 0.0,
        loops: bool = False,
    ) -> None:
        super().__init__(space, model, rng, noise, extractor, exploration=exploration)
        self._knobs, self._loops = KnobFeatures(space), loops
        self._combined: dict[int, _Combined] = {}

    def _extractor(self, sketch: int) -> Any:
        if sketch not in self._combined:
            self._combined[sketch] = _Combined(super()._extractor(sketch), self._knobs, sketch, self._loops)
        return self._combined[sketch]


class _Combined:
    """Features of a sketch: those of loops, or none, followed by those of knobs."""

    def __init__(self, loops: Any, knobs: KnobFeatures, sketch: int, wanted: bool) -> None:
        self._loop_features, self._knobs, self._sketch, self._wanted = loops, knobs, sketch, wanted
        self.roofline = loops.roofline

    def __call__(self, columns: NDArray[np.float64]) -> NDArray[np.float32]:
        """(columns, n) → (n, statements, features); of knobs alone there is one statement.

        Its features of loops are 0 then, the estimate of the roofline, which models look for by its place, is 1.
        """
        knobs = self._knobs.of_columns(self._sketch, columns)
        if self._wanted:
            loops = self._loop_features(columns)
        else:
            loops = np.zeros((len(knobs), 1, len(FeatureExtractor.names)), np.float32)
            loops[:, :, SECONDS] = 1.0
        statements = loops.shape[1]
        both = np.empty((loops.shape[2] + knobs.shape[1], statements, len(knobs)), np.float32)
        both[: loops.shape[2]] = loops.transpose(2, 1, 0)
        both[loops.shape[2] :] = knobs.T[:, None, :]
        return both.transpose(2, 1, 0)  # candidates innermost in memory, as models are fastest with
