"""ONNX models of one operator with random legal attributes, for every operator that is imported.

`random_model(rng)` draws one, `random_feeds(model, rng)` its inputs, whose range is in their `doc_string`,
as "low high". Values that the importer must know are initialisers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from tests.autotune.graph import (
    draw_arithmetic,
    draw_choices,
    draw_integers,
    draw_places,
    draw_recurrent,
    draw_spectral,
)
from tests.autotune.graph.drawing import GENERATORS, Draw

__all__ = [
    "GENERATORS",
    "draw_arithmetic",
    "draw_choices",
    "draw_integers",
    "draw_places",
    "draw_recurrent",
    "draw_spectral",
    "random_feeds",
    "random_model",
]

Array = NDArray[Any]


def random_model(rng: np.random.Generator, op: str | None = None) -> onnx.ModelProto:
    """A model of one node.

    Args:
        rng: generator of all draws.
        op: the operator; a random one by default.
    """
    draw = Draw(rng)
    GENERATORS[op or draw.pick(*sorted(GENERATORS))](draw)
    return draw.model()


def random_feeds(model: onnx.ModelProto, rng: np.random.Generator) -> dict[str, Array]:
    """Inputs of a model that `random_model` drew."""
    feeds: dict[str, Array] = {}
    for value in model.graph.input:
        kind = value.type.tensor_type
        dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
        shape = tuple(dim.dim_value for dim in kind.shape.dim)
        low, high = map(float, value.doc_string.split())
        if dtype.kind == "f":
            feeds[value.name] = rng.uniform(low, high, shape).astype(dtype)
        else:
            feeds[value.name] = rng.integers(int(low), int(high), shape, endpoint=True).astype(dtype)
    return feeds
