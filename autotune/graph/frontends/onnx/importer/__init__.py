"""Import of ONNX models as graphs. A further operator is a function with a line of `@imports` in one of these files."""

from __future__ import annotations

from autotune.graph.errors import ModelError
from autotune.graph.frontends.onnx.importer import (
    activations,
    choosing,
    control_flow,
    einsum,
    elementwise,
    integers,
    layers,
    nbits,
    normalisation,
    places,
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

__all__ = [
    "HANDLERS",
    "ModelError",
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
    "places",
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
