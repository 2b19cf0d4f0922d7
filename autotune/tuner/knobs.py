"""Features of the values of decisions, alone or beside those of loops."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.features import SECONDS, FeatureExtractor
from costmodel.features.knobs import KnobFeatures


class NoProgram:
    """Replacement for the features of loops in spaces without loops: all estimates are equal."""

    def roofline(self, columns: NDArray[np.float64]) -> NDArray[np.float64]:
        """Maps (columns, n) to ones (n,)."""
        return np.ones(columns.shape[1])


class WithKnobs:
    """Features of a sketch: those of loops, or zeros, followed by those of knobs.

    Args:
        loops: extractor of the features of loops.
        knobs: extractor of the features of the space's knobs.
        sketch: number of the sketch.
        wanted: whether the model sees the features of loops, too.
    """

    def __init__(self, loops: Any, knobs: KnobFeatures, sketch: int, wanted: bool) -> None:
        self._loop_features, self._knobs, self._sketch, self._with_loops = loops, knobs, sketch, wanted
        self.roofline = loops.roofline

    def __call__(self, columns: NDArray[np.float64]) -> NDArray[np.float32]:
        """Maps (columns, n) to (n, statements, features); without features of loops there is one statement.

        Its features of loops are then 0, except for the roofline's estimate, which models find by its position: it is
        1.
        """
        knobs = self._knobs.of_columns(self._sketch, columns)
        if self._with_loops:
            loops = self._loop_features(columns)
        else:
            loops = np.zeros((len(knobs), 1, len(FeatureExtractor.names)), np.float32)
            loops[:, :, SECONDS] = 1.0
        statements = loops.shape[1]
        both = np.empty((loops.shape[2] + knobs.shape[1], statements, len(knobs)), np.float32)
        both[: loops.shape[2]] = loops.transpose(2, 1, 0)
        both[loops.shape[2] :] = knobs.T[:, None, :]
        return both.transpose(2, 1, 0)  # candidates innermost in memory, which is fastest for models
