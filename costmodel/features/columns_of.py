"""Index and extent expressions as columns of a population."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from costmodel.columns import Tape, Value
from search_space.ir.expr import Expr

_BINARY: dict[str, Callable[[Value, Value], Value]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a - b * (a // b),
    "min": lambda a, b: a.least(b),
    "max": lambda a, b: a.most(b),
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "eq": lambda a, b: a.equals(b),
    "and": lambda a, b: a.least(b),
    "or": lambda a, b: a.most(b),
}


class Columns:
    """Puts expressions over decision variables on a tape.

    A loop variable counts as 0: an extent or size that varies with an outer loop is taken at its first iteration.

    Args:
        tape: where they go.
        names: decision variables, in the order of the columns.
    """

    def __init__(self, tape: Tape, names: Sequence[str]) -> None:
        self.tape = tape
        self._position = {name: i for i, name in enumerate(names)}
        self._memo: dict[int, Value] = {}

    def __call__(self, expr: Expr) -> Value:
        value = self._memo.get(expr.serial)
        if value is None:
            value = self._memo[expr.serial] = self._convert(expr)
        return value

    def _convert(self, expr: Expr) -> Value:
        if expr.op == "const":
            return self.tape.const(float(expr.value))
        if expr.op == "var":
            position = self._position.get(expr.args[0])
            return self.tape.const(0) if position is None else self.tape.variable(position)
        operands = [self(a) for a in expr.operands]
        if expr.op == "cast":
            return operands[0]
        if expr.op == "select":
            return operands[0].otherwise(operands[1], operands[2])
        if expr.op == "ne":
            return operands[0].equals(operands[1]).equals(0)
        if expr.op not in _BINARY:
            raise ValueError(f"an extent must be arithmetic over decision variables, but got {expr}")
        return _BINARY[expr.op](*operands)
