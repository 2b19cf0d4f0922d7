"""Expressions as text, with the parentheses they need."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from search_space.ir.expr import FLOATS, Expr
from search_space.ir.semantics import BINARY

LARGE = 1000
"""Nodes as a tree from which an expression's subterms are named in its text."""
_RANK = {op: row.rank for op, row in BINARY.items() if row.symbol}


def render(e: Expr, show: Callable[[Expr], str], is_atom: Callable[[Expr], bool] = lambda e: False) -> str:
    """The text of an expression.

    Args:
        e: the expression.
        show: text of an operand.
        is_atom: says that an operand's text needs no parentheses.
    """

    def rank_of(operand: Expr) -> float:
        return 9 if is_atom(operand) else _RANK.get(operand.op, 9)

    if e.op == "const":
        if e.dtype in FLOATS:
            shown = str(np.float32(e.value)) if e.dtype == "float32" else repr(e.value)
            return shown if math.isfinite(e.value) else f"float('{e.value}')"
        return str(e.value)
    if e.op == "var":
        return str(e.args[0])
    if e.op == "load":
        name = e.args[0] if isinstance(e.args[0], str) else e.args[0].name
        return f"{name}[{', '.join(map(show, e.args[1:]))}]"
    if e.op in _RANK:
        rank = _RANK[e.op]
        left, right = map(show, e.args)
        if rank_of(e.args[0]) < rank:
            left = f"({left})"
        if rank_of(e.args[1]) <= rank and not (e.op == "add" and e.args[1].op == "add"):
            right = f"({right})"
        return f"{left} {BINARY[e.op].symbol} {right}"
    if e.op == "call":
        return f"{e.args[0]}({show(e.args[1])})"
    if e.op == "cast":
        return f"{e.dtype}({show(e.args[0])})"
    return f"{e.op}({', '.join(show(a) if isinstance(a, Expr) else str(a) for a in e.args)})"


def text_of(e: Expr) -> str:
    """The text of an expression on one line; a large one ends with what the names of its shared subterms stand for."""
    from search_space.ir.sharing import is_large, where

    return where(e) if is_large([e], LARGE) else _small(e)


def _small(e: Expr) -> str:
    """The text of an expression as a tree."""
    if e._text is None:
        e._text = render(e, _small)
    return e._text
