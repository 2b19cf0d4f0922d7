"""Expressions as text, with the parentheses they need."""

from __future__ import annotations

import math

import numpy as np

from search_space.ir.expr import FLOATS, Expr
from search_space.ir.semantics import BINARY

_RANK = {op: row.rank for op, row in BINARY.items() if row.symbol}


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
    if e.op in _RANK:
        rank = _RANK[e.op]
        left, right = (str(a) for a in e.args)
        if _RANK.get(e.args[0].op, 9) < rank:
            left = f"({left})"
        if _RANK.get(e.args[1].op, 9) <= rank and not (e.op == "add" and e.args[1].op == "add"):
            right = f"({right})"
        return f"{left} {BINARY[e.op].symbol} {right}"
    if e.op == "call":
        return f"{e.args[0]}({e.args[1]})"
    if e.op == "cast":
        return f"{e.dtype}({e.args[0]})"
    return f"{e.op}({', '.join(map(str, e.args))})"
