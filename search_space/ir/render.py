"""Expressions as text, with the parentheses they need."""

from __future__ import annotations

import math

import numpy as np

from search_space.ir.expr import FLOATS, Expr

_SYMBOL = {"add": "+", "sub": "-", "mul": "*", "div": "/", "floordiv": "//", "mod": "%", "lt": "<", "le": "<="}
_SYMBOL |= {"eq": "==", "ne": "!=", "and": "and", "or": "or", "shl": "<<", "shr": ">>"}
_RANK: dict[str, float] = {"or": 1, "and": 2, "lt": 3, "le": 3, "eq": 3, "ne": 3, "add": 4, "sub": 4}
_RANK |= {"shl": 3.5, "shr": 3.5, "mul": 5, "div": 5, "floordiv": 5, "mod": 5}


def render(e: Expr) -> str:
    """The text of an expression."""
    if e.op == "const":
        if e.dtype in FLOATS:
            shown = str(np.float32(e.value)) if e.dtype == "float32" else repr(e.value)
            return shown if math.isfinite(e.value) else f"float('{e.value}')"
        return str(e.value)
    if e.op == "var":
        return str(e.args[0])
    if e.op == "load":
        name = e.args[0] if isinstance(e.args[0], str) else e.args[0].name
        return f"{name}[{', '.join(map(str, e.args[1:]))}]"
    if e.op in _SYMBOL:
        rank = _RANK[e.op]
        left, right = (str(a) for a in e.args)
        if _RANK.get(e.args[0].op, 9) < rank:
            left = f"({left})"
        if _RANK.get(e.args[1].op, 9) <= rank and not (e.op == "add" and e.args[1].op == "add"):
            right = f"({right})"
        return f"{left} {_SYMBOL[e.op]} {right}"
    if e.op == "call":
        return f"{e.args[0]}({e.args[1]})"
    if e.op == "cast":
        return f"{e.dtype}({e.args[0]})"
    return f"{e.op}({', '.join(map(str, e.args))})"
