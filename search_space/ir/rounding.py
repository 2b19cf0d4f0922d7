"""Expressions that are their one operand with fewer digits."""

from __future__ import annotations

from search_space.ir.expr import Expr

TFLOAT32 = "tfloat32"
"""Rounds to 10 bits of mantissa, as tensor cores take factors of float32; a number of 16 bits stays as it is."""


def rounds(e: Expr) -> bool:
    """Whether an expression is its one operand in another dtype or with fewer digits."""
    return e.op == "cast" or (e.op == "call" and e.args[0] == TFLOAT32)
