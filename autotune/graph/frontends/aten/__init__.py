"""Import of PyTorch's graphs of ATen operators. A further operator is a function with a line of `@converts`."""

from __future__ import annotations

from autotune.graph.frontends.aten import (
    activations,
    attention,
    elementwise,
    layers,
    normalisation,
    recurrent,
    reductions,
    resizing,
    selection,
    shapes,
    windows,
)
from autotune.graph.frontends.aten.exported import import_exported
from autotune.graph.frontends.aten.graph import ConstantValues, IndexCheck, import_fx, make_constant_values, refusals
from autotune.graph.frontends.aten.registry import CONVERTERS

__all__ = [
    "CONVERTERS",
    "IndexCheck",
    "ConstantValues",
    "activations",
    "attention",
    "elementwise",
    "import_exported",
    "import_fx",
    "make_constant_values",
    "layers",
    "normalisation",
    "recurrent",
    "reductions",
    "refusals",
    "resizing",
    "selection",
    "shapes",
    "windows",
]
