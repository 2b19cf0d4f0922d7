"""Replaces operations by less: what changes nothing goes, what is written out becomes one operation."""

from __future__ import annotations

from autotune.graph.ir import Graph
from autotune.graph.passes.simplify import casts, identities, padding, patterns, views
from autotune.graph.passes.site import Rule, sweep

RULES: tuple[Rule, ...] = (*views.RULES, *identities.RULES, *padding.RULES, *patterns.RULES, *casts.RULES)
"""Every rule, in the order in which they are tried."""

__all__ = ["RULES", "simplify"]


def simplify(graph: Graph) -> Graph:
    """The graph after one sweep of every rule."""
    return sweep(graph, *RULES)
