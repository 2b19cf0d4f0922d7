"""Import of ONNX models as graphs. A further operator is a function with a line of `@imports` in one of these files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autotune.graph.errors import UnsupportedModelError
from autotune.graph.frontends.onnx.importer import (
    activations,
    choosing,
    control_flow,
    einsum,
    elementwise,
    gather_scatter,
    integers,
    layers,
    nbits,
    normalisation,
    quantised,
    recurrent,
    reductions,
    resizing,
    sampling,
    selection,
    shapes,
    spatial,
    spectral,
    trigonometry,
)
from autotune.graph.frontends.onnx.importer.model import import_model, import_with_types
from autotune.graph.frontends.onnx.importer.registry import HANDLERS
from autotune.graph.frontends.onnx.importer.weights import with_weights
from search_space.former_names import former_attributes

__all__ = [
    "HANDLERS",
    "UnsupportedModelError",
    "activations",
    "choosing",
    "trigonometry",
    "control_flow",
    "einsum",
    "elementwise",
    "import_model",
    "import_with_types",
    "integers",
    "layers",
    "nbits",
    "normalisation",
    "gather_scatter",
    "quantised",
    "recurrent",
    "reductions",
    "resizing",
    "sampling",
    "selection",
    "shapes",
    "spatial",
    "spectral",
    "with_weights",
]


if not TYPE_CHECKING:
    __getattr__ = former_attributes(__name__, {"ModelError": "UnsupportedModelError"})
