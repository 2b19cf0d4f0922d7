"""Expressions on columns, a value for each candidate: put on a tape, and evaluated there by straight-line NumPy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from search_space.ir.expr import Expr
from search_space.ir.semantics import BINARY
from search_space.ir.tape import (
    ADD,
    CONST,
    DIV,
    EQ,
    FLOOR,
    LE,
    LT,
    MAX,
    MIN,
    MUL,
    SELECT,
    SUB,
    VARIABLE,
    Tape,
    Value,
)

ColumnFunction = Callable[[NDArray[np.float64]], NDArray[np.float64]]

CHUNK = 2048  # candidates at a time, so that a few hundred temporaries stay in the second-level cache
DEEPEST = 8  # calls within each other: Python's parser ends at some hundred
_NAMES = {ADD: "add", SUB: "subtract", MUL: "multiply", DIV: "divide", FLOOR: "floor", SELECT: "where"}
_TRUTHS = {LT: "less", LE: "less_equal", EQ: "equal"}
_EXTREMES = {MIN: "minimum", MAX: "maximum"}  # of truth values: whether both hold, and whether either does
_TEXT = {**_NAMES, **_TRUTHS, **_EXTREMES}
_SCOPE = {name: getattr(np, name) for name in _TEXT.values()} | {"inf": np.inf}


class Columns:
    """A translator of expressions over decision variables to values on a tape.

    Args:
        tape: tape that the values are added to.
        names: decision variables, in the order of the columns.
        loops: whether other variables are those of loops, which count as 0: an extent or size that varies with an
            outer loop is taken at its first iteration.
    """

    def __init__(self, tape: Tape, names: Sequence[str], loops: bool = False) -> None:
        self.tape = tape
        self._position = {name: i for i, name in enumerate(names)}
        self._loops = loops
        self._memo: dict[int, Value] = {}

    def __call__(self, expr: Expr) -> Value:
        """Returns the column of an expression.

        Raises:
            KeyError: it mentions an unknown variable.
            ValueError: it is no arithmetic over variables.
        """
        value = self._memo.get(expr.serial)
        if value is None:
            value = self._memo[expr.serial] = self._convert(expr)
        return value

    def _convert(self, expr: Expr) -> Value:
        op = expr.op
        if op == "const":
            return self.tape.const(float(expr.value))
        if op == "var":
            if self._loops and expr.args[0] not in self._position:
                return self.tape.const(0)
            return self.tape.variable(self._position[expr.args[0]])
        operands = [self(a) for a in expr.operands]
        if op == "cast":
            return operands[0]
        if op == "select":
            return operands[0].otherwise(operands[1], operands[2])
        column = BINARY[op].column if op in BINARY else None
        if column is None:
            raise ValueError(f"an extent must be arithmetic over decision variables, but got {expr}")
        found: Value = column(*operands)
        return found


def compile_columns(outputs: Sequence[Expr], names: Sequence[str]) -> ColumnFunction:
    """Compiles `outputs` to a function of decision columns.

    Args:
        outputs: expressions over the variables in `names`.
        names: variable names, in the order of the columns.

    Returns:
        A function from float64 `(len(names), n)` to float64 `(len(outputs), n)`.

    Raises:
        KeyError: an output mentions a variable that is not in `names`.
    """
    columns = Columns(Tape(), names)
    return straight_line(columns.tape, [columns(output) for output in outputs])


def straight_line(tape: Tape, outputs: Sequence[Value]) -> ColumnFunction:
    """Compiles values of a tape to a function of columns: float64 (variables, n) → float64 (outputs, n)."""
    wanted = [output.index for output in outputs]
    lines = _lines(tape, wanted)
    scope: dict[str, object] = dict(_SCOPE)
    exec("def block(x, out):\n" + ("\n".join(lines) or "  pass"), scope)
    block: Callable[[NDArray[np.float64], NDArray[np.float64]], None] = scope["block"]  # type: ignore[assignment]

    def function(columns: NDArray[np.float64]) -> NDArray[np.float64]:
        count = columns.shape[1]
        out = np.empty((len(wanted), count))
        for start in range(0, count, CHUNK):
            block(columns[:, start : start + CHUNK], out[:, start : start + CHUNK])
        return out

    return function


def _lines(tape: Tape, outputs: Sequence[int]) -> list[str]:
    """Writes the statements that evaluate nodes.

    A node with one use is written inside that use, so that its memory is freed at once.
    """
    order = tape.list_dependencies(outputs)
    uses = Counter(chain(outputs, *map(tape.operands, order)))
    text: dict[int, str] = {}
    depth: dict[int, int] = {}
    truths: set[int] = set()
    lines: list[str] = []
    for index in order:
        op, payload, _, _ = tape.nodes[index]
        operands = tape.operands(index)
        depth[index] = 0
        if op == CONST:
            text[index] = repr(tape.numbers[payload])
            continue
        if op == VARIABLE:
            value = f"x[{payload}]"
        else:
            if op in _TRUTHS or (op in _EXTREMES and truths.issuperset(operands)):
                truths.add(index)
            shown = [text[a] for a in operands]
            for at, operand in enumerate(operands):
                if op in _NAMES and operand in truths and not (op == SELECT and at == 0):
                    shown[at] = f"multiply({shown[at]},1.0)"  # NumPy's sum of two truth values is no number
            value = f"{_TEXT[op]}({','.join(shown)})"
            depth[index] = 1 + max(depth[a] for a in operands)
        if uses[index] > 1 or depth[index] > DEEPEST:
            lines.append(f"  t{index}={value}")
            value, depth[index] = f"t{index}", 0
        text[index] = value
    return lines + [f"  out[{j}]={text[index]}" for j, index in enumerate(outputs)]
