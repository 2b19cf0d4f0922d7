"""The pattern of an expression: its computation at each point of some loops, independent of tensors and indices.

Expressions with equal patterns are computed by the same instruction.
"""

from __future__ import annotations

from collections.abc import Sequence

from search_space.ir.expr import Expr, variables


def pattern_of_load(node: Expr, loops: Sequence[str]) -> str:
    """Returns the dtype that a load reads, and the loops on which its indices depend."""
    used = [f"#{i}" for i, loop in enumerate(loops) if any(loop in variables(x) for x in node.args[1:])]
    return f"{node.dtype}({','.join(used)})"


def expression_pattern(value: Expr, loops: Sequence[str]) -> str:
    """Returns the expression's text with loads reduced to their dtype and the loops they depend on."""
    if value.op == "load":
        return pattern_of_load(value, loops)
    if value.op == "cast":
        return f"{value.dtype}<{expression_pattern(value.args[0], loops)}>"
    if value.op == "call":
        return f"{value.args[0]}<{expression_pattern(value.args[1], loops)}>"
    if value.op in ("add", "sub", "mul"):
        left, right = (expression_pattern(a, loops) for a in value.args)
        if value.op != "sub" and right < left:
            left, right = right, left
        return f"({left} {value.op} {right})"
    return str(value)
