"""Results of simplifiers with the context they depend on, for other simplifiers with the same question.

Sketches of one algorithm differ in a loop order or in where padding is computed; most of their indices, and the ranges
of their variables, are alike. When a second sketch is lowered, four of five proofs are already here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from search_space.ir.expr import Expr, variables
from search_space.ir.polynomial import Poly

Context = int
"""A number for everything that a result depends on besides the expression; equal contexts have equal numbers."""


class Findings:
    """Simplified expressions and proofs, by expression and context, for the sketches that share them.

    Attributes:
        nodes: (serial of an expression, context) → the expression simplified.
        proofs: (context, terms of a polynomial) → whether it is proved not to be positive.
    """

    def __init__(self) -> None:
        self._contexts: dict[tuple[object, ...], Context] = {}
        self.nodes: dict[tuple[int, Context], Expr] = {}
        self.proofs: dict[tuple[Context, frozenset[tuple[tuple[Expr, ...], int]]], bool] = {}

    def knowledge(self, rules: type, limits: Mapping[str, int], facts: Iterable[Poly]) -> Context:
        """Numbers the facts about decision variables together with the rules that are applied."""
        known = frozenset(frozenset(fact.items()) for fact in facts)
        return self._number((rules, frozenset(limits.items()), known))

    def context(self, knowledge: Context, extents: Mapping[str, Expr | None]) -> Context:
        """Numbers the context of an expression.

        Args:
            knowledge: number of the facts about decision variables.
            extents: extent of every variable in the expression and in these extents; None: the variable has none.
        """
        return self._number((knowledge, frozenset(extents.items())))

    def _number(self, key: tuple[object, ...]) -> Context:
        return self._contexts.setdefault(key, len(self._contexts))


def collect_extents(names: Iterable[str], ranges: Mapping[str, Expr]) -> dict[str, Expr | None]:
    """Collects the extents that bounds over some variables depend on: theirs, and those of variables in extents."""
    extents: dict[str, Expr | None] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in extents:
            extent = extents[name] = ranges.get(name)
            if extent is not None and extent.op != "const":
                waiting += variables(extent)
    return extents
