"""Zeros around a padded input: the elements of a buffer that are zero, and loops over products that skip them.

A window that reaches past the edge of an image multiplies zeros there. They add nothing to a sum of integers, exactly,
so that these products can be skipped. A row of the window outside the image is no iteration of the loop over its rows,
and a target skips the single products of an unrolled tile.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from search_space.ir.access import conjuncts
from search_space.ir.expr import Expr, condition_of_term, const, maximum, minimum, substitute, transform, var, variables
from search_space.ir.polynomial import canon, from_poly, poly, poly_add
from search_space.ir.stmt import (
    Allocate,
    For,
    Intrinsic,
    LoopProgram,
    Seq,
    Stmt,
    Store,
    map_children,
    map_exprs,
    walk_stmt,
)
from search_space.schedule.intrinsics import get_intrinsic


@dataclass(frozen=True, eq=False)
class Border:
    """Elements of a buffer that are zero unless all of some conditions hold.

    Attributes:
        indices: indices of an element, in the loops that write it.
        inside: comparisons of integers in the same loops, and in those around.
    """

    indices: tuple[Expr, ...]
    inside: tuple[Expr, ...]

    def at(self, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """Returns the conditions for the element at other indices, without comparisons that these do not decide."""
        replacements = dict(zip(self.indices, indices, strict=True))
        own = frozenset(name for index in self.indices for name in variables(index))
        moved = [(c, transform(c, lambda e: replacements.get(e) if e.op != "const" else None)) for c in self.inside]
        # a variable of the writing loops has no meaning where the element is read
        return tuple(new for old, new in moved if not self._left(old, replacements, own))

    @staticmethod
    def _left(condition: Expr, indices: Mapping[Expr, Expr], own: frozenset[str]) -> bool:
        """Tells whether a comparison has variables of the writing loops besides those in complete indices."""
        rest = transform(condition, lambda e: const(0) if e.op != "const" and e in indices else None)
        return bool(variables(rest) & own)


def borders(program: LoopProgram) -> Mapping[str, Border]:
    """Finds the buffers that one statement fills, with zero where a condition fails; returns their borders by name."""
    stores: dict[str, list[Store]] = {}
    for stmt in walk_stmt(program.body):
        if isinstance(stmt, Intrinsic):
            stores.setdefault(stmt.output.buffer, []).append(Store(stmt.output.buffer, (), const(1)))
        elif isinstance(stmt, Store):
            stores.setdefault(stmt.buffer, []).append(stmt)
    by_buffer: dict[str, Border] = {}
    for name, (first, *others) in stores.items():
        condition = condition_of_term(first.value)
        if others or first.reducer is not None or condition is None:
            continue
        inside = tuple(c for c in conjuncts(condition) if c.op in ("lt", "le") and c.args[0].dtype == "int64")
        if inside:
            by_buffer[name] = Border(first.indices, inside)
    return by_buffer


def present(borders: Mapping[str, Border], call: Intrinsic) -> tuple[Expr, ...]:
    """Lists comparisons; where one fails, an instruction adds only zeros to sums of integers.

    A comparison that depends on an index that moves within an operand's tile is left out.
    """
    if not any(o.buffer in borders for o in call.inputs) or call.reset or get_intrinsic(call.name).reducer != "sum":
        return ()
    conditions: list[Expr] = []
    for operand in call.inputs:
        border = borders.get(operand.buffer)
        if border is not None:
            pairs = zip(operand.indices, operand.elements, strict=True)
            # An index that moves within the instruction has no single value: no comparison may use it.
            indices = tuple(first if first is each else var("#within") for first, each in pairs)
            conditions += [c for c in border.at(indices) if "#within" not in variables(c)]
    return tuple(dict.fromkeys(conditions))


def trim_borders(program: LoopProgram) -> LoopProgram:
    """Removes the iterations that multiply zeros of a border from loops over products of integers.

    Before:  for r in 3: unroll w in 14: dot(sum[w], padded[h + r, w], weight[r])
    After:   for r in min(3, 15 - h) - max(0, 1 - h): ... padded[h + r + max(0, 1 - h), w] ...

    where padded[i, ...] is zero unless 1 <= i < 15.
    """
    found = borders(program)
    found = {name: border for name, border in found.items() if _exact(program, name)}
    return replace(program, body=_trim_loops(program.body, found)) if found else program


def _exact(program: LoopProgram, name: str) -> bool:
    """Tells whether all instructions that read a buffer add up integers, so that zeros add nothing."""
    calls = [s for s in walk_stmt(program.body) if isinstance(s, Intrinsic)]
    reading = [s for s in calls if any(o.buffer == name for o in s.inputs)]
    return bool(reading) and all(program.buffers[s.output.buffer].dtype == "int32" for s in reading)


def _trim_loops(stmt: Stmt, borders: Mapping[str, Border]) -> Stmt:
    stmt = map_children(stmt, lambda s: _trim_loops(s, borders))
    if not isinstance(stmt, For) or stmt.kind != "serial" or not stmt.extent.is_const or stmt.extent.value < 2:
        return stmt
    low, high = const(0), stmt.extent
    for condition in _shared(stmt, borders):
        bound = _bound(condition, stmt.var)
        if bound is None:
            continue
        first, past = bound
        low = low if first is None else maximum(low, first)
        high = high if past is None else minimum(high, past)
    if low.is_const and high is stmt.extent:
        return stmt
    extent = maximum(high - low, 0)
    body = map_exprs(stmt.body, lambda e: substitute(e, {stmt.var: var(stmt.var) + low}))
    return For(stmt.var, extent, stmt.kind, body, stmt.pragmas)


def _shared(loop: For, borders: Mapping[str, Border]) -> list[Expr]:
    """Lists comparisons in a loop's variable and no inner loop's: where one fails, all products are zero."""
    inner: set[str] = set()
    common: list[Expr] | None = None
    for stmt in walk_stmt(loop.body):
        if isinstance(stmt, For):
            inner.add(stmt.var)
        elif isinstance(stmt, Store | Allocate):
            return []
        elif isinstance(stmt, Intrinsic):
            here = present(borders, stmt)
            common = list(here) if common is None else [c for c in common if c in here]
        elif not isinstance(stmt, Seq):
            return []
    names = [(c, variables(c)) for c in common or ()]
    return [c for c, of in names if loop.var in of and not of & inner]


def _bound(condition: Expr, name: str) -> tuple[Expr | None, Expr | None] | None:
    """Solves a comparison for a variable: returns its first value and the one past the last; None: not linear."""
    left, right = (poly(side) for side in condition.args)
    gap = poly_add(left, right, -1)  # at most 0
    if condition.op == "lt":
        gap = poly_add(gap, {(): 1})
    factor = gap.get((var(name),), 0)
    rest = poly_add(gap, {(var(name),): factor}, -1) if factor else gap
    if not factor or any(name in variables(atom) for monomial in rest for atom in monomial):
        return None
    if factor > 0:
        return None, canon(from_poly(poly_add({(): 0}, rest, -1)) // factor + 1)
    return canon(from_poly(poly_add(rest, {(): -factor - 1})) // -factor), None
