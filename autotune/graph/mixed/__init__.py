"""Mixed precision: each kernel of a network in float32 or in 16 bits, the fastest choice that is accurate enough."""

from __future__ import annotations

from autotune.graph.mixed.assignment import Problem, TradeoffPoint, assign, front
from autotune.graph.mixed.byte_layers import ByteLayers, in_types
from autotune.graph.mixed.mixture import Candidate, Mixture, graph_digest
from autotune.graph.mixed.rounding_sites import RoundingSite, list_rounding_sites
from autotune.graph.mixed.sensitivity import float_outputs, noise_between, sensitivities, to

__all__ = [
    "ByteLayers",
    "Candidate",
    "Mixture",
    "RoundingSite",
    "TradeoffPoint",
    "Problem",
    "assign",
    "float_outputs",
    "front",
    "graph_digest",
    "in_types",
    "noise_between",
    "list_rounding_sites",
    "sensitivities",
    "to",
]
