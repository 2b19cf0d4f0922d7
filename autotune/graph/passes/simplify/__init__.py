"""Algebraic simplification: operations without effect are removed, and decomposed operations become one."""

from __future__ import annotations

from autotune.graph.ir import Graph
from autotune.graph.passes.simplify import casts, identities, padding, patterns, views
from autotune.graph.passes.site import Rule, sweep

RULES: tuple[Rule, ...] = (*views.RULES, *identities.RULES, *padding.RULES, *patterns.RULES, *casts.RULES)
"""All rules, in the order in which they are tried."""

__all__ = ["RULES", "simplify"]


def simplify(graph: Graph) -> Graph:
    """Sweeps the graph once with all rules."""
    return sweep(graph, *RULES)
