"""Nests of loops around one statement, seen as an accelerator sees them: extents, and steps in elements of memories."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from search_space.ir.expr import Expr, const, total, variables
from search_space.ir.stmt import Buffer, For, Stmt
from targets.base import BuildError

Integer = Callable[[Mapping[str, int]], int]

_INFIX = {"add": "+", "sub": "-", "mul": "*", "floordiv": "//", "mod": "%", "lt": "<", "le": "<=", "eq": "==", "ne": "!="}
_INFIX |= {"and": "and", "or": "or"}


def integer(expr: Expr) -> Integer:
    """Index arithmetic as a Python function of the loop variables.

    Raises:
        BuildError: an operation that indices do not have.
    """
    source = _source(expr)
    function: Integer = eval(f"lambda e: {source}")
    return function


def _source(e: Expr) -> str:
    if e.op == "const":
        return repr(int(e.value))
    if e.op == "var":
        return f"e[{e.args[0]!r}]"
    if e.op in _INFIX:
        return f"({_source(e.args[0])} {_INFIX[e.op]} {_source(e.args[1])})"
    if e.op in ("min", "max"):
        return f"{e.op}({_source(e.args[0])}, {_source(e.args[1])})"
    if e.op == "select":
        return f"({_source(e.args[1])} if {_source(e.args[0])} else {_source(e.args[2])})"
    if e.op == "cast":
        return _source(e.args[0])
    raise BuildError(f"an index must be made of integer arithmetic, but got {e}")


@dataclass(frozen=True)
class Nest:
    """Loops around one statement, outermost first."""

    names: tuple[str, ...]
    extents: tuple[int, ...]
    body: Stmt

    @staticmethod
    def of(stmt: Stmt) -> Nest:
        """The loops of a perfect nest, and what is in it."""
        names: list[str] = []
        extents: list[int] = []
        while isinstance(stmt, For):
            names.append(stmt.var)
            extents.append(int(stmt.extent.value))
            stmt = stmt.body
        return Nest(tuple(names), tuple(extents), stmt)

    def at(self, env: Mapping[str, int], **values: int) -> dict[str, int]:
        """The loops around this nest, its own at 0 but for `values`."""
        return {**env, **dict.fromkeys(self.names, 0), **values}

    def steps(self, value: Integer, env: Mapping[str, int], what: str) -> tuple[int, ...]:
        """How much `value` grows with each loop.

        Raises:
            BuildError: it is not a sum of multiples of the loops.
        """
        base = value(self.at(env))
        found = tuple(value({**self.at(env), n: 1}) - base if x > 1 else 0 for n, x in self.pairs)
        last = value({**env, **{n: x - 1 for n, x in self.pairs}})
        if last != base + sum(step * (x - 1) for step, (_, x) in zip(found, self.pairs, strict=True)):
            raise BuildError(f"the index of {what} must be a sum of multiples of the loops {', '.join(self.names)}")
        return found

    @property
    def pairs(self) -> tuple[tuple[str, int], ...]:
        """Names and extents."""
        return tuple(zip(self.names, self.extents, strict=True))


def flat(buffer: Buffer, indices: Sequence[Expr]) -> Expr:
    """Where an element lies in a buffer, in numbers from its start."""
    return total([i * s for i, s in zip(indices, buffer.strides, strict=True)]) if indices else const(0)


@dataclass(frozen=True)
class Interval:
    """The part of a loop in which a condition holds: first and one past the last."""

    first: int
    end: int

    @property
    def empty(self) -> bool:
        return self.first >= self.end


def bounds(conditions: Sequence[Expr], nest: Nest) -> Callable[[Mapping[str, int]], dict[str, Interval]]:
    """For each loop the part in which all `conditions` hold, each of which may depend on one loop of the nest.

    Raises:
        BuildError: a condition on several loops, or that is no comparison.
    """
    compiled: list[tuple[str | None, Integer, int]] = []  # loop, a number that must be at least 0
    for condition in conditions:
        if condition.op not in ("lt", "le"):
            raise BuildError(f"padding must be bounded by comparisons, but got {condition}")
        left, right = condition.args
        loops = [n for n in nest.names if n in variables(condition)]
        if len(loops) > 1:
            raise BuildError(f"padding must be bounded loop by loop, but got {condition}")
        gap = integer(right - left)
        compiled.append((loops[0] if loops else None, gap, int(condition.op == "lt")))

    def found(env: Mapping[str, int]) -> dict[str, Interval]:
        whole = {name: Interval(0, extent) for name, extent in nest.pairs}
        zero = nest.at(env)
        for loop, gap, strict in compiled:
            base = gap(zero) - strict
            if loop is None:
                if base < 0:
                    whole = {name: Interval(0, 0) for name in whole} or {"": Interval(0, 0)}
                continue
            step = gap({**zero, loop: 1}) - strict - base
            now = whole[loop]
            if step > 0:
                whole[loop] = Interval(max(now.first, -(base // step)), now.end)
            elif step < 0:
                whole[loop] = Interval(now.first, min(now.end, base // -step + 1))
            elif base < 0:
                whole[loop] = Interval(0, 0)
        return whole

    return found


def conjuncts(condition: Expr) -> list[Expr]:
    """The parts of a conjunction."""
    if condition.op == "and":
        return [part for arg in condition.args for part in conjuncts(arg)]
    return [condition]
