"""Masked columns of causal attention: loops over columns end after the last column that a row of a block sees.

A block of rows computes scores of all columns and masks those after a row's own. Values computed from masked scores are
exactly zero: an exponential of a number below all others, and its products. Half of the square can be skipped.

Each row must see a column: of a row that sees none, all exponentials are 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from search_space.ir.expr import Expr, lift, maximum, minimum, substitute, var, variables, walk
from search_space.ir.polynomial import canon, from_poly, poly, poly_add
from search_space.ir.simplify import Simplifier
from search_space.ir.stmt import Allocate, For, LoopProgram, Seq, Stmt, Store, map_children, walk_stmt

UNSEEN = -1e30
"""Greatest value of a masked score; the exponential of its difference from a visible score is zero."""

Loops = tuple[For, ...]


@dataclass(frozen=True)
class _Mask:
    """A condition on the last index of a row, `column <= row`, that holds only for the first columns.

    Attributes:
        column: left side of the comparison.
        visible_columns: columns for which it holds in any of the rows, an expression in the loops around the row's.
    """

    column: Expr
    visible_columns: Expr


def without_unseen(program: LoopProgram) -> LoopProgram:
    """Removes iterations over columns that all rows of a block mask.

    Before:  for i in 8: for j in 32: e[i, 16 j ...] = exp(select(16 j + ... <= 8 b + i, s[i, 16 j ...], -1e30) - m[i])
    After:   for i in 8: for j in min(32, (8 b + 8 + 15) // 16): ...

    The sums of `e`, and of the products with it, are shortened likewise.
    """
    if not any(_match_mask(stmt) is not None for stmt in walk_stmt(program.body) if isinstance(stmt, Store)):
        return program
    return replace(program, body=_in_blocks(program.body))


def _in_blocks(stmt: Stmt) -> Stmt:
    if isinstance(stmt, For) and stmt.kind == "parallel":
        return replace(stmt, body=_Block(stmt).shorten())
    return map_children(stmt, _in_blocks)


def _match_mask(store: Store) -> tuple[Expr, Expr] | None:
    """Returns the column and the row of a store's mask; None for a store without one.

    Where `column <= row` fails, an exponential is zero, or a maximum gains nothing.
    """
    value = store.value
    if store.reducer is None:
        if value.op != "call" or value.args[0] != "exp" or value.args[1].op not in ("add", "sub"):
            return None
        value = value.args[1].args[0]
    elif store.reducer != "max":
        return None
    while value.op == "select" and _ends(value):
        value = value.args[1]
    if value.op != "select" or value.args[0].op != "le" or not value.args[2].is_const:
        return None
    column, row = value.args[0].args
    return (column, row) if value.args[2].value <= UNSEEN and column.dtype == "int64" else None


def _ends(value: Expr) -> bool:
    """Tells whether a choice only keeps elements past the end of a row out of a maximum."""
    return bool(value.args[2].is_const and value.args[2].value == float("-inf"))


class _Block:
    """A parallel loop over blocks of rows."""

    def __init__(self, loop: For) -> None:
        self.body, self._around = loop.body, {loop.var: loop.extent}
        self.stores = list(_stores(loop.body, ()))
        self.extents: dict[str, Expr] = {}
        """New extents of loops, by their variables."""

    def shorten(self) -> Stmt:
        """Builds the body with fewer iterations."""
        for store, loops in self.stores:
            if store.reducer is None and _match_mask(store) is not None:
                self._zeros(store, loops)
        return self._shorten_loops(self.body)

    def _zeros(self, store: Store, loops: Loops) -> None:
        """Shortens the loops that compute, read and lead to a buffer that is zero where a comparison fails."""
        mask = self._mask(store, loops)
        if mask is None or not _alike(mask.column, store.indices[-1]) or len(self._writing(store.buffer)) != 1:
            return
        readers = [(s, around) for s, around in self.stores if _reads(s, store.buffer)]
        sums = [self._find_sum_loop(reader, around, store.buffer) for reader, around in readers]
        for along in sums:
            if along is not None:
                self._end(along, mask.visible_columns)
        own, steps = _find_loop(store.indices[-1], loops), [along[1] for along in sums if along is not None]
        # If a reader needs complete rows, the zeros must be there; vectors of sums may reach past the visible columns.
        if own is not None and steps and len(steps) == len(readers) and self._alone(own[0], {store.buffer}):
            self._end(own, mask.visible_columns + (max(steps) - 1))
        for source in dict.fromkeys(n.args[0] for n in walk(store.value) if n.op == "load"):
            self._source(str(source), mask)

    def _source(self, name: str, mask: _Mask) -> None:
        """Shortens the loops that compute a buffer that is read under the mask alone, and the maxima of it."""
        writing, reading = self._writing(name), [(s, around) for s, around in self.stores if _reads(s, name)]
        if len(writing) != 1 or not all(self._under(mask, name, reader, around) for reader, around in reading):
            return
        store, loops = writing[0]
        own = _find_loop(store.indices[-1], loops)
        if own is None or not self._alone(own[0], {name}):
            return
        self._end(own, mask.visible_columns)
        for reader, around in reading:
            masked = _match_mask(reader)
            along = _find_loop(masked[0], around) if masked is not None and reader.reducer == "max" else None
            if along is not None and self._alone(along[0], {reader.buffer}):
                self._end(along, mask.visible_columns)

    def _mask(self, store: Store, loops: Loops) -> _Mask | None:
        """Returns the mask of a store; None if its comparison is another one, or a row may see no column."""
        found = _match_mask(store)
        if found is None:
            return None
        column, row = found
        inner = {loop.var: loop.extent for loop in loops}
        sees = Simplifier({**self._around, **inner}).nonnegative(row)
        if not sees or variables(row) & variables(column) or not _grows(row, inner):
            return None
        last = {name: canon(lift(extent) - 1) for name, extent in inner.items() if name in variables(row)}
        return _Mask(column, canon(substitute(row, last) + 1))

    def _under(self, mask: _Mask, name: str, reader: Store, loops: Loops) -> bool:
        """Tells whether a store has a single read of a buffer, under an equal mask."""
        own = self._mask(reader, loops)
        indices = [n.args[-1] for n in walk(reader.value) if n.op == "load" and n.args[0] == name]
        return (
            own is not None
            and own.visible_columns is mask.visible_columns
            and len(indices) == 1
            and _alike(own.column, indices[0])
        )

    def _find_sum_loop(self, reader: Store, loops: Loops, name: str) -> tuple[For, int, Expr] | None:
        """Returns the loop of a sum along a buffer, as `_find_loop` has it; None if the store is no such sum."""
        places = [n for n in walk(reader.value) if n.op == "load" and n.args[0] == name]
        if reader.reducer != "sum" or len(places) != 1 or not _factor(reader.value, places[0]):
            return None
        own = _find_loop(places[0].args[-1], loops)
        return own if own is not None and self._alone(own[0], {reader.buffer}) else None

    def _end(self, own: tuple[For, int, Expr], visible_columns: Expr) -> None:
        loop, step, before = own
        self.extents[loop.var] = _shorter(loop.extent, visible_columns, step, before)

    def _alone(self, loop: For, buffers: set[str]) -> bool:
        """Tells whether a loop writes, besides `buffers`, only to buffers of its own."""
        own = {s.buffer.name for s in walk_stmt(loop) if isinstance(s, Allocate)}
        stores = [s for s in walk_stmt(loop) if not isinstance(s, (For, Seq, Allocate))]
        return all(isinstance(s, Store) and s.buffer in own | buffers for s in stores)

    def _writing(self, name: str) -> list[tuple[Store, Loops]]:
        return [(s, around) for s, around in self.stores if s.buffer == name]

    def _shorten_loops(self, stmt: Stmt) -> Stmt:
        stmt = map_children(stmt, self._shorten_loops)
        if isinstance(stmt, For) and stmt.var in self.extents:
            return replace(stmt, extent=self.extents[stmt.var])
        return stmt


def _stores(stmt: Stmt, loops: Loops) -> Iterator[tuple[Store, Loops]]:
    """Lists every store, and the loops around it."""
    if isinstance(stmt, Store):
        yield stmt, loops
    elif isinstance(stmt, Seq):
        for child in stmt.body:
            yield from _stores(child, loops)
    elif isinstance(stmt, Allocate):
        yield from _stores(stmt.body, loops)
    elif isinstance(stmt, For):
        yield from _stores(stmt.body, (*loops, stmt))


def _alike(a: Expr, b: Expr) -> bool:
    return poly(a) == poly(b)


def _reads(store: Store, name: str) -> bool:
    return any(n.op == "load" and n.args[0] == name for n in walk(store.value))


def _grows(row: Expr, inner: Mapping[str, Expr]) -> bool:
    """Tells whether an expression increases with each of its loops: a sum, or a quotient of one."""
    if row.op == "floordiv" and row.args[1].is_const and row.args[1].value > 0:
        return _grows(row.args[0], inner)
    for monomial, factor in poly(row).items():
        names = {name for atom in monomial for name in variables(atom)} & inner.keys()
        if names and not (len(monomial) == 1 and monomial[0].op == "var" and factor > 0):
            return False
    return True


def _find_loop(index: Expr, loops: Loops) -> tuple[For, int, Expr] | None:
    """Finds the serial loop that an index runs along: returns it, its step, and the start of the index.

    A clamped tile, which begins earlier at the end of a row, covers the rest of the row, so the clamp is ignored.
    """
    for loop in loops:
        if loop.var not in variables(index):
            continue
        terms = dict(poly(index))
        for monomial, factor in list(terms.items()):
            if len(monomial) == 1 and monomial[0].op == "min" and loop.var in variables(monomial[0]) and factor == 1:
                moving = [side for side in monomial[0].args if loop.var in variables(side)]
                if len(moving) != 1:
                    return None
                del terms[monomial]
                terms = poly_add(terms, poly(moving[0]))
        step = terms.pop((var(loop.var),), 0)
        own = {one.var: one.extent for one in loops[loops.index(loop) + 1 :]}
        before, reach = {}, 0
        for monomial, factor in terms.items():
            names = {name for atom in monomial for name in variables(atom)}
            if loop.var in names:
                return None
            if not names & own.keys():
                before[monomial] = factor
                continue
            extent = own[monomial[0].args[0]] if len(monomial) == 1 and monomial[0].op == "var" else None
            if extent is None or factor < 0 or not extent.is_const:
                return None
            reach += factor * (int(extent.value) - 1)
        if loop.kind != "serial" or step < 1 or reach >= step:
            return None
        return loop, step, canon(from_poly(before))
    return None


def _factor(value: Expr, read: Expr) -> bool:
    """Tells whether a sum's term is zero wherever its read of a place is zero."""
    if value is read:
        return True
    if value.op == "mul":
        return any(_factor(side, read) for side in value.args)
    if value.op == "select":
        return _factor(value.args[1], read) and value.args[2].is_const and value.args[2].value == 0
    return False


def _shorter(extent: Expr, visible_columns: Expr, step: int, before: Expr) -> Expr:
    """Computes the iterations up to the last one that begins with a visible column."""
    last = canon(visible_columns - before + (step - 1)) // step
    return maximum(minimum(extent, last), 0)
