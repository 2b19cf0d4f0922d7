"""Searched substitutions: rules between small operator graphs, generated and verified, and a search that applies them.

See docs/substitutions.md. The idea is that of TASO (Jia et al., SOSP 2019).
"""

from __future__ import annotations

from autotune.lab.substitutions.cost import Analytic, Cost
from autotune.lab.substitutions.rules import Rule, saved_rules
from autotune.lab.substitutions.search import SearchOutcome, explore

__all__ = ["Analytic", "Cost", "SearchOutcome", "Rule", "explore", "saved_rules"]
