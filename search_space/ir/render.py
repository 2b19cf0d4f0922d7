"""Expressions as text, with the parentheses they need.

Expressions are graphs, and their text as trees may be exponentially longer than they are. In a large expression each
shared subterm is written once, under a name, and a chain of selections is a table.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from search_space.ir.expr import FLOATS, Expr, walk
from search_space.ir.semantics import BINARY

LARGE = 1000
"""Nodes as a tree from which an expression's subterms are named in its text."""
_LEAST_NODES = 4
"""Least size of a subterm that gets a name; the text of a smaller one is as short as a name."""
_LEAST_CASES = 3
"""Least length of a chain of selections that becomes a table."""
_RANK = {op: row.rank for op, row in BINARY.items() if row.symbol}


def render(e: Expr, show: Callable[[Expr], str], is_atom: Callable[[Expr], bool] = lambda e: False) -> str:
    """Writes the text of an expression.

    Args:
        e: expression to write.
        show: function that writes an operand.
        is_atom: test for operands whose text needs no parentheses.
    """

    def operand_rank(operand: Expr) -> float:
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
        if operand_rank(e.args[0]) < rank:
            left = f"({left})"
        if operand_rank(e.args[1]) <= rank and not (e.op == "add" and e.args[1].op == "add"):
            right = f"({right})"
        return f"{left} {BINARY[e.op].symbol} {right}"
    if e.op == "call":
        return f"{e.args[0]}({show(e.args[1])})"
    if e.op == "cast":
        return f"{e.dtype}({show(e.args[0])})"
    return f"{e.op}({', '.join(show(a) if isinstance(a, Expr) else str(a) for a in e.args)})"


def expression_text(e: Expr) -> str:
    """Writes an expression on one line; a large one ends with the definitions of its shared subterms."""
    return where(e) if is_large([e], LARGE) else _small(e)


def _small(e: Expr) -> str:
    """Writes the text of an expression as a tree."""
    if e._text is None:
        e._text = render(e, _small)
    return e._text


def is_large(roots: Sequence[Expr], limit: int) -> bool:
    """Tells whether expressions have more than `limit` nodes as trees, after visiting no more than that."""
    stack, count = list(roots), 0
    while stack:
        count += 1
        if count > limit:
            return True
        stack += stack.pop().operands
    return False


class SharedText:
    """Names for the subterms of expressions that occur more than once, in the order in which they are defined.

    Args:
        roots: the expressions, of which none gets a name.

    Attributes:
        has_tables: whether an expression is written as a table, as a choice of many constants is.
    """

    def __init__(self, roots: Sequence[Expr]) -> None:
        order = list({node.serial: node for root in roots for node in walk(root)}.values())
        counts = Counter(operand.serial for node in order for operand in node.operands)
        counts.update(root.serial for root in roots)
        nodes: dict[int, int] = {}
        inner = {rest.serial for node in order if (rest := _next_case(node)) is not None}
        tops = {root.serial for root in roots}
        reserved = {name for node in order if node.op in ("var", "load") and isinstance(name := node.args[0], str)}
        self._names: dict[int, str] = {}
        self._named_nodes: list[Expr] = []
        self.has_tables = any(len(_cases(root)) >= _LEAST_CASES for root in roots)
        for node in order:  # operands first
            nodes[node.serial] = 1 + sum(nodes[operand.serial] for operand in node.operands)
            shared = counts[node.serial] > 1 and nodes[node.serial] >= _LEAST_NODES
            table = node.serial not in inner and len(_cases(node)) >= _LEAST_CASES
            if node.op not in ("const", "var") and ((table and node.serial not in tops) or shared):
                name = f"{'table' if table else 't'}{len(self._named_nodes)}"
                while name in reserved:
                    name += "_"
                self._names[node.serial] = name
                self._named_nodes.append(node)
                self.has_tables |= table

    @property
    def definitions(self) -> list[str]:
        """Lines that define the names, each after the definitions that it uses."""
        return [line for node in self._named_nodes for line in self.lines(self._names[node.serial] + " =", node)]

    def text(self, e: Expr) -> str:
        """Writes an expression on one line: its name, or its text over the names of its subterms."""
        return self._names.get(e.serial) or render(e, self.text, self._is_atom)

    def lines(self, head: str, e: Expr, tail: str = "") -> list[str]:
        """Writes `head`, an expression's definition, and `tail`: one line, or a table with a line for each case."""
        cases = _cases(e)
        if len(cases) < _LEAST_CASES:
            return [f"{head} {render(e, self.text, self._is_atom)}{tail}"]
        index = cases[0][0].args[0]
        rows = [f"  {self.text(test.args[1])}: {self.text(value)}" for test, value in cases]
        rest = e
        for _ in cases:
            rest = rest.args[2]
        return [f"{head} case {self.text(index)}:{tail}", *rows, f"  else: {self.text(rest)}"]

    def _is_atom(self, e: Expr) -> bool:
        return e.serial in self._names


def where(e: Expr) -> str:
    """Writes a large expression on one line, followed by the definitions of its names."""
    shared = SharedText([e])
    first, *others = shared.lines("", e)
    defined = "; ".join(line.strip() for line in shared.definitions)
    return " ".join([first.strip(), *(line.strip() for line in others), *([f"where {defined}"] if defined else [])])


def _next_case(e: Expr) -> Expr | None:
    """Returns the selection that continues a chain where its first case does not hold."""
    if not _is_case(e):
        return None
    rest: Expr = e.args[2]
    return rest if _is_case(rest) and rest.args[0].args[0] is e.args[0].args[0] else None


def _is_case(e: Expr) -> bool:
    """Tells whether an expression selects by the equality of a value and a constant."""
    return e.op == "select" and e.args[0].op == "eq" and bool(e.args[0].args[1].op == "const")


def _cases(e: Expr) -> list[tuple[Expr, Expr]]:
    """Lists the tests and values of the chain that begins at an expression."""
    cases, part = [], e if _is_case(e) else None
    while part is not None:
        cases.append((part.args[0], part.args[1]))
        part = _next_case(part)
    return cases
