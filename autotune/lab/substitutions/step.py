"""The search for substitutions as a graph pass."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.graph.ir import Graph
from autotune.graph.passes.pipeline import GraphPass, PassResult
from autotune.lab.substitutions.cost import Analytic
from autotune.lab.substitutions.search import explore

BUDGET = 2000
"""Graphs that a search may make."""

LEAST_SAVING = 0.01
"""Part of a network's modelled seconds that substitutions must save; the model cannot tell smaller gains from none."""


@dataclass(frozen=True)
class Substitute(GraphPass):
    """Searches substitutions of parts of a graph by faster ones; its fact is the result of the search."""

    name = "substitute"

    def apply(self, graph: Graph) -> PassResult:
        outcome = explore(graph, Analytic(network_inputs=frozenset(graph.inputs)), BUDGET, least=LEAST_SAVING)
        return PassResult(outcome.graph, outcome)
