"""Mixed precision: each kernel of a network in float32 or in 16 bits, the fastest choice that is accurate enough."""

from __future__ import annotations

from autotune.graph.mixed.assignment import Point, Problem, assign, front
from autotune.graph.mixed.byte_layers import ByteLayers, in_types
from autotune.graph.mixed.mixture import Candidate, Mixture, graph_digest
from autotune.graph.mixed.places import Place, places_of
from autotune.graph.mixed.sensitivity import float_outputs, noise_between, sensitivities, to

__all__ = [
    "ByteLayers",
    "Candidate",
    "Mixture",
    "Place",
    "Point",
    "Problem",
    "assign",
    "float_outputs",
    "front",
    "graph_digest",
    "in_types",
    "noise_between",
    "places_of",
    "sensitivities",
    "to",
]
