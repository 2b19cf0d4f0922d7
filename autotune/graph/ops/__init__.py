"""Operations of graphs. A new one is a `GraphOp` in one of these files, registered there; see `base`."""

from __future__ import annotations

from autotune.graph.ops import (
    attention,
    decoding,
    elementwise,
    filters,
    fixed_point,
    folding,
    images,
    layers,
    loops,
    maxima,
    ordering,
    phases,
    quantised,
    recurrent,
    resampling,
    scans,
    selection,
    shapes,
)
from autotune.graph.ops.base import OPS, GraphOp, Kind, find, register

__all__ = [
    "OPS",
    "GraphOp",
    "Kind",
    "attention",
    "decoding",
    "elementwise",
    "filters",
    "find",
    "fixed_point",
    "folding",
    "images",
    "layers",
    "loops",
    "maxima",
    "ordering",
    "phases",
    "quantised",
    "recurrent",
    "register",
    "resampling",
    "scans",
    "selection",
    "shapes",
]
