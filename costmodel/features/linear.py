"""Index expressions as linear forms over loop variables, with coefficients in the decision variables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from search_space.ir.expr import Expr, const, maximum, minimum, product, transform, variables
from search_space.ir.simplify import poly


@dataclass(frozen=True)
class Linear:
    """One dimension's index: coefficient by loop variable; `opaque` loops move it in ways that are not linear."""

    coefficients: Mapping[str, Expr]
    opaque: frozenset[str]

    def span(self, running: Mapping[str, Expr], extent: Expr) -> Expr:
        """Distinct positions while the loops in `running` (variable → extent) run, at most the dimension's extent."""
        if self.opaque & running.keys():
            return extent
        out = const(1)
        for name, coefficient in self.coefficients.items():
            if name in running:
                out = out + coefficient * (running[name] - 1)
        return minimum(maximum(out, 1), extent)


def linear(index: Expr, loops: frozenset[str]) -> Linear:
    """The linear form of an index. A clamped start min(a, b) moves as a does; divisions are opaque."""

    def first_arm(node: Expr) -> Expr | None:
        if node.op in ("min", "max") and variables(node) & loops:
            arm = node.args[0] if variables(node.args[0]) & loops else node.args[1]
            return transform(arm, first_arm)
        return None

    coefficients: dict[str, Expr] = {}
    opaque: set[str] = set()
    for monomial, factor in poly(transform(index, first_arm)).items():
        moving = [atom for atom in monomial if variables(atom) & loops]
        if not moving:
            continue
        if len(moving) > 1 or moving[0].op != "var":
            for atom in moving:
                opaque |= variables(atom) & loops
            continue
        rest = list(monomial)
        rest.remove(moving[0])
        name = moving[0].args[0]
        coefficients[name] = coefficients.get(name, const(0)) + product(rest) * abs(factor)
    return Linear(coefficients, frozenset(opaque))
