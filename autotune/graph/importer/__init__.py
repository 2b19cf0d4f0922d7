"""ONNX models to graphs. A further operator is a function with a line of `@imports` in one of these files."""

from __future__ import annotations

from autotune.graph.importer import (
    activations,
    einsum,
    elementwise,
    layers,
    normalisation,
    places,
    recurrent,
    reductions,
    resizing,
    selection,
    shapes,
    spatial,
    spectral,
)
from autotune.graph.importer.model import import_model
from autotune.graph.importer.registry import HANDLERS
from autotune.graph.importer.weights import with_weights
from autotune.graph.onnx_model import ModelError, load_model

__all__ = [
    "HANDLERS",
    "ModelError",
    "activations",
    "einsum",
    "elementwise",
    "import_model",
    "layers",
    "load_model",
    "normalisation",
    "places",
    "recurrent",
    "reductions",
    "resizing",
    "selection",
    "shapes",
    "spatial",
    "spectral",
    "with_weights",
]
