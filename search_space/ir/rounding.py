"""Expressions that are their only operand with fewer digits, or within limits."""

from __future__ import annotations

from dataclasses import dataclass

from search_space.ir.expr import BOOL, FLOATS, Expr

TFLOAT32 = "tfloat32"
"""Rounds to 10 bits of mantissa, as tensor cores take factors of float32; a number of 16 bits stays as it is."""


@dataclass(frozen=True)
class ClampedNumber:
    """A number `min(max(number, low), high)` with constant limits; NaN becomes the lower one."""

    number: Expr
    low: float
    high: float


def match_clamp(e: Expr) -> ClampedNumber | None:
    """Returns the clamped float32 that a cast converts to an integer, None for other expressions.

    No integer is right for NaN, and machines differ in theirs. So it becomes the lower limit, as in ONNX Runtime's
    `QuantizeLinear`, without an additional instruction. As a truth value NaN is true, like everything that is not 0.
    """
    if e.op != "cast" or e.dtype in (*FLOATS, BOOL):
        return None
    value, limits = e.args[0], []
    for op in ("min", "max"):
        if value.dtype != "float32" or value.op != op or not value.args[1].is_const:
            return None
        limits.append(float(value.args[1].value))
        value = value.args[0]
    high, low = limits
    return ClampedNumber(value, low, high)


def rounds(e: Expr) -> bool:
    """Tells whether an expression is its only operand in another dtype or with fewer digits."""
    return e.op == "cast" or (e.op == "call" and e.args[0] == TFLOAT32)
