"""Spans: distinct positions that an index takes while loops run, as columns over the decision variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from search_space.ir.columns import Columns
from search_space.ir.expr import Expr, variables, walk
from search_space.ir.tape import Tape, Value

UNKNOWN = 1 << 20
"""Step of an index that is read from a tensor."""
Widths = list[Value]  # by level: greatest minus least value of an index


class Spans:
    """Widths of index expressions at each level of a loop nest.

    A clamped start min(x, c) is as wide as x. An expression that is not arithmetic over loop variables is as wide as
    any axis, so that the caller clips it at the axis's extent.

    Args:
        columns: converter of extents and coefficients.
        loops: (position in the nest, extent) of each variable.
        starts: position of the outermost loop that runs, by level.
    """

    def __init__(self, columns: Columns, loops: Mapping[str, tuple[int, Value]], starts: Sequence[int]) -> None:
        self._columns, self._loops, self._starts = columns, loops, starts
        self._tape: Tape = columns.tape
        self._zero = [self._tape.const(0)] * len(starts)
        self._memo: dict[int, Widths | None] = {}

    def __call__(self, index: Expr) -> Widths | None:
        """Returns widths by level; None if they are unbounded."""
        if index.serial not in self._memo:
            self._memo[index.serial] = self._widths(index)
        return self._memo[index.serial]

    def _widths(self, e: Expr) -> Widths | None:
        if e.op == "load":
            return None
        if not variables(e) & self._loops.keys():
            return self._zero
        if e.op == "var":
            position, extent = self._loops[e.args[0]]
            width = (extent - 1).most(0)
            return [width if position >= start else self._zero[0] for start in self._starts]
        parts = [self(a) for a in (e.operands[1:] if e.op == "select" else e.operands)]
        if any(p is None for p in parts):
            return self._measure_limits(e)
        return self._combine(e, [p for p in parts if p is not None])

    def _measure_limits(self, e: Expr) -> Widths | None:
        """Returns the width between two numbers that limit an index that is data; None for other expressions."""
        inner, high = e.args if e.op == "min" else (e, e)
        if e.op != "min" or not high.is_const or inner.op != "max" or not inner.args[1].is_const:
            return None
        width = self._tape.const(int(high.value) - int(inner.args[1].value))
        last = max(position for name, (position, _) in self._loops.items() if name in variables(e))
        return [width if last >= start else self._zero[0] for start in self._starts]

    def _combine(self, e: Expr, parts: list[Widths]) -> Widths | None:
        if e.op == "cast":
            return parts[0]
        first, second = parts
        if e.op in ("add", "sub"):
            return [a + b for a, b in zip(first, second, strict=True)]
        if e.op in ("min", "max", "select"):
            return [a.most(b) for a, b in zip(first, second, strict=True)]
        if e.op == "mul" and first is self._zero:
            return self._scale(second, e.args[0])
        if second is not self._zero or variables(e.args[1]) & self._loops.keys():
            return None
        if e.op == "mul":
            return self._scale(first, e.args[1])
        divisor = self._columns(e.args[1]).most(1)
        if e.op == "floordiv":
            return [a // divisor for a in first]
        if e.op == "mod":
            return [a.least(divisor - 1) for a in first]
        return None

    def _scale(self, widths: Widths, factor: Expr) -> Widths:
        scale = self._columns(factor).magnitude()
        return [w * scale for w in widths]


def step(e: Expr, var: str, columns: Columns) -> Value:
    """Returns the maximum step of an index when the loop `var` advances by one; negative if the index falls."""
    zero = columns.tape.const(0)
    if var not in variables(e):
        return zero
    if e.op == "var":
        return columns.tape.const(1)
    if e.op == "load":
        return columns.tape.const(UNKNOWN)
    parts = [step(a, var, columns) for a in (e.operands[1:] if e.op == "select" else e.operands)]
    if e.op in ("add", "sub"):
        return parts[0] + parts[1] if e.op == "add" else parts[0] - parts[1]
    if e.op in ("min", "max", "select"):
        # A limit, which does not move, must not hide that the index falls.
        moves = [part for part, side in zip(parts, e.operands[-2:], strict=True) if var in variables(side)]
        return moves[0] if len(moves) == 1 else parts[0].most(parts[1])
    if e.op == "mul":
        moving = [
            (part, other) for part, a, other in zip(parts, e.args, e.args[::-1], strict=True) if var in variables(a)
        ]
        if any(node.op == "load" for _, other in moving for node in walk(other)):
            return columns.tape.const(UNKNOWN)
        return columns.tape.total(part * columns(other) for part, other in moving)
    if e.op == "floordiv":
        return parts[0] // columns(e.args[1]).most(1)
    if e.op == "mod":
        return parts[0].least((columns(e.args[1]) - 1).most(0))
    return parts[0]
