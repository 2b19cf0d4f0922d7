"""Expressions that are their one operand with fewer digits, or within limits."""

from __future__ import annotations

from dataclasses import dataclass

from search_space.ir.expr import BOOL, FLOATS, Expr

TFLOAT32 = "tfloat32"
"""Rounds to 10 bits of mantissa, as tensor cores take factors of float32; a number of 16 bits stays as it is."""


@dataclass(frozen=True)
class Limited:
    """A number `min(max(number, low), high)` with constant limits; NaN becomes the lower one."""

    number: Expr
    low: float
    high: float


def limited(e: Expr) -> Limited | None:
    """The float32 between limits that a cast makes an integer of, if it does.

    Of NaN no integer is right, and each machine makes another one. So it becomes the lower limit, as in ONNX Runtime's
    `QuantizeLinear`, and takes no instruction more. As a truth value NaN is true, as all that differs from 0.
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
    return Limited(value, low, high)


def rounds(e: Expr) -> bool:
    """Whether an expression is its one operand in another dtype or with fewer digits."""
    return e.op == "cast" or (e.op == "call" and e.args[0] == TFLOAT32)
