"""Nests of loops around one statement, seen as an accelerator sees them: extents, and steps in elements of memories.

A nest runs many times, once for each iteration of the loops around it. Everything is found for all of these executions
at once, in arrays of (executions,).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from search_space.ir.expr import Expr, const, total, variables
from search_space.ir.stmt import Buffer, For, Stmt
from targets.base import BuildError

Ints = NDArray[np.int64]
Integer = Callable[[Mapping[str, Any]], Any]

_INFIX = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "floordiv": "//",
    "mod": "%",
    "lt": "<",
    "le": "<=",
    "eq": "==",
    "ne": "!=",
}
_INFIX |= {"and": "&", "or": "|"}
_FUNCTIONS = {"min": "minimum", "max": "maximum", "select": "where"}
_NAMES = {name: getattr(np, name) for name in _FUNCTIONS.values()}


def integer(expr: Expr) -> Integer:
    """Compiles index arithmetic to a function of the loop variables, each a number or an array.

    Raises:
        BuildError: an operation that indices do not have.
    """
    function: Integer = eval(f"lambda e: {_source(expr)}", dict(_NAMES))
    return function


def _source(e: Expr) -> str:
    if e.op == "const":
        return repr(int(e.value))
    if e.op == "var":
        return f"e[{e.args[0]!r}]"
    if e.op in _INFIX:
        return f"({_source(e.args[0])} {_INFIX[e.op]} {_source(e.args[1])})"
    if e.op in _FUNCTIONS:
        return f"{_FUNCTIONS[e.op]}({', '.join(_source(arg) for arg in e.args)})"
    if e.op == "cast":
        return _source(e.args[0])
    raise BuildError(f"an index must be made of integer arithmetic, but got {e}")


@dataclass(frozen=True)
class Linear:
    """An index that is a sum of multiples of a nest's loops.

    Attributes:
        base: its value where these begin: (executions,).
        steps: increment per iteration of each loop: (executions, loops).
    """

    base: Ints
    steps: Ints

    def over(self, element: int, loops: Sequence[bool]) -> Linear:
        """Converts numbers to elements; `loops`: those outside of an element.

        Raises:
            BuildError: a place within an element.
        """
        steps = self.steps[:, np.array(loops, bool)]
        for numbers in (self.base, steps):
            if (wrong := numbers[numbers % element != 0]).size:
                raise BuildError(f"places must be multiples of an element of {element}, but got {wrong[0]}")
        return Linear(self.base // element, steps // element)


@dataclass(frozen=True)
class Nest:
    """Loops around one statement, outermost first, and how often all of it runs.

    Attributes:
        around: the loops around the nest: values of each, (executions,).
    """

    names: tuple[str, ...]
    extents: tuple[int, ...]
    body: Stmt
    around: Mapping[str, Ints] = field(default_factory=dict)
    executions: int = 1

    @staticmethod
    def of(stmt: Stmt, executions: Sequence[Mapping[str, int]]) -> Nest:
        """Makes the nest of a perfect nest of loops.

        Args:
            executions: values of the loops around it.
        """
        names: list[str] = []
        extents: list[int] = []
        while isinstance(stmt, For):
            names.append(stmt.var)
            extents.append(int(stmt.extent.value))
            stmt = stmt.body
        if 0 in extents:
            raise BuildError(f"a loop must run at least once, but got {names[extents.index(0)]} in 0")
        around = {name: np.array([e[name] for e in executions], np.int64)[:, None] for name in executions[0]}
        return Nest(tuple(names), tuple(extents), stmt, around, len(executions))

    def values(self, expr: Expr) -> Ints:
        """Evaluates `expr` with all loops at 0, each alone at 1 (if it gets there), all at the end: (executions, loops
        + 2).
        """
        points = np.zeros((len(self.names), 2 + len(self.names)), np.int64)
        for loop, extent in enumerate(self.extents):
            points[loop, 1 + loop] = min(1, extent - 1)
            points[loop, -1] = extent - 1
        found = integer(expr)({**self.around, **dict(zip(self.names, points, strict=True))})
        return np.broadcast_to(np.asarray(found, np.int64), (self.executions, points.shape[1]))

    def linear(self, expr: Expr, what: str) -> Linear:
        """Converts an index to its steps.

        Raises:
            BuildError: the index is not a sum of multiples of the loops.
        """
        found = self.values(expr)
        base, last = found[:, 0], found[:, -1]
        steps = found[:, 1:-1] - base[:, None]
        if (last != base + steps @ (np.array(self.extents, np.int64) - 1)).any():
            raise BuildError(f"the index of {what} must be a sum of multiples of the loops {', '.join(self.names)}")
        return Linear(base, steps)


def flat(buffer: Buffer, indices: Sequence[Expr]) -> Expr:
    """Returns the offset of an element in a buffer, in numbers from its start."""
    return total([i * s for i, s in zip(indices, buffer.strides, strict=True)]) if indices else const(0)


@dataclass(frozen=True)
class Interval:
    """The part of a loop in which a condition holds: first and one past the last."""

    first: int
    end: int

    @property
    def empty(self) -> bool:
        return self.first >= self.end


def bounds(conditions: Sequence[Expr], nest: Nest) -> Ints:
    """Computes the part of each loop in which all `conditions` hold; each may depend on one loop of the nest.

    Returns:
        First and one past the last: (executions, loops, 2).

    Raises:
        BuildError: a condition on several loops, or that is no comparison.
    """
    parts = np.zeros((nest.executions, len(nest.names), 2), np.int64)
    parts[:, :, 1] = nest.extents
    for condition in conditions:
        if condition.op not in ("lt", "le"):
            raise BuildError(f"padding must be bounded by comparisons, but got {condition}")
        left, right = condition.args
        loops = [n for n in nest.names if n in variables(condition)]
        if len(loops) > 1:
            raise BuildError(f"padding must be bounded loop by loop, but got {condition}")
        gap = nest.values(right - left) - int(condition.op == "lt")  # at least 0 where the condition holds
        base = gap[:, 0]
        if not loops:
            if not nest.names and (base < 0).any():
                raise BuildError(f"a copy of one number must not be padding, but {condition} does not hold")
            parts[base < 0] = 0
            continue
        loop = nest.names.index(loops[0])
        step = gap[:, 1 + loop] - base
        size = np.maximum(np.abs(step), 1)
        first = np.where(step > 0, -(base // size), 0)
        always = np.where((step == 0) & (base < 0), 0, nest.extents[loop])
        end = np.where(step < 0, base // size + 1, always)
        parts[:, loop, 0] = np.maximum(parts[:, loop, 0], first)
        parts[:, loop, 1] = np.minimum(parts[:, loop, 1], end)
    return parts


def conjuncts(condition: Expr) -> list[Expr]:
    """Splits a conjunction into its parts."""
    if condition.op == "and":
        return [part for arg in condition.args for part in conjuncts(arg)]
    return [condition]


def alike(columns: Ints) -> list[tuple[tuple[int, ...], Ints]]:
    """Groups executions by rows of (executions, columns): each distinct row with the executions that have it."""
    if not columns.shape[1] or (columns == columns[0]).all():
        return [(tuple(columns[0].tolist()), np.arange(len(columns)))]
    rows, inverse = np.unique(columns, axis=0, return_inverse=True)
    return [(tuple(row), np.flatnonzero(inverse.reshape(-1) == i)) for i, row in enumerate(rows.tolist())]
