"""What simplifiers have found out, with what it rests on, for others that ask the same.

Sketches of one algorithm differ in a loop order or in where padding is computed; most of their indices, and the ranges
of the variables in these, are alike. Lowering a second one finds four of five proofs here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from search_space.ir.expr import Expr, variables
from search_space.ir.polynomial import Poly

Context = int
"""A number for all that a result rests on besides the expression, equal exactly where that is."""


class Findings:
    """Simplified expressions and proofs, by expression and context. They live as long as whoever shares them.

    Attributes:
        nodes: (serial of an expression, context) → the expression simplified.
        proofs: (context, terms of a polynomial) → whether it is proved not to be positive.
    """

    def __init__(self) -> None:
        self._contexts: dict[tuple[object, ...], Context] = {}
        self.nodes: dict[tuple[int, Context], Expr] = {}
        self.proofs: dict[tuple[Context, frozenset[tuple[tuple[Expr, ...], int]]], bool] = {}

    def knowledge(self, rules: type, limits: Mapping[str, int], facts: Iterable[Poly]) -> Context:
        """The context of what is known of decision variables, and of the rules that are applied."""
        known = frozenset(frozenset(fact.items()) for fact in facts)
        return self._number((rules, frozenset(limits.items()), known))

    def context(self, knowledge: Context, reached: Mapping[str, Expr | None]) -> Context:
        """The context of an expression.

        Args:
            knowledge: of decision variables.
            reached: of every variable in the expression, and in the extents of these, the extent; None: it has none.
        """
        return self._number((knowledge, frozenset(reached.items())))

    def _number(self, key: tuple[object, ...]) -> Context:
        return self._contexts.setdefault(key, len(self._contexts))


def reached(names: Iterable[str], ranges: Mapping[str, Expr]) -> dict[str, Expr | None]:
    """The extents that bounds over some variables depend on: theirs, and those of the variables in extents."""
    found: dict[str, Expr | None] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            extent = found[name] = ranges.get(name)
            if extent is not None and extent.op != "const":
                waiting += variables(extent)
    return found
