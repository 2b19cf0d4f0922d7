"""What causal attention does not see: loops over columns end where the last row of a block sees none any more.

A block of rows computes scores of all columns, masks those behind a row's own, and what is made of these is exactly
zero: an exponential of a number below all others, and its products. None of it has to be made: half of a square.

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
"""What a masked score is at most; the exponential of its difference from a score that is seen is zero."""

Loops = tuple[For, ...]


@dataclass(frozen=True)
class _Mask:
    """A condition on the last index of a row, `column <= row`, that holds for the first columns alone.

    Attributes:
        column: what is compared.
        seen: columns for which it holds in any of the rows, an expression in the loops around the row's.
    """

    column: Expr
    seen: Expr


def without_unseen(program: LoopProgram) -> LoopProgram:
    """The same program without iterations over columns that all rows of a block mask.

    Before:  for i in 8: for j in 32: e[i, 16 j ...] = exp(select(16 j + ... <= 8 b + i, s[i, 16 j ...], -1e30) - m[i])
    After:   for i in 8: for j in min(32, (8 b + 8 + 15) // 16): ...

    and so for the sums of `e`, and of what `s` is.
    """
    if not any(_masked(stmt) is not None for stmt in walk_stmt(program.body) if isinstance(stmt, Store)):
        return program
    return replace(program, body=_in_blocks(program.body))


def _in_blocks(stmt: Stmt) -> Stmt:
    if isinstance(stmt, For) and stmt.kind == "parallel":
        return replace(stmt, body=_Block(stmt).shortened())
    return map_children(stmt, _in_blocks)


def _masked(store: Store) -> tuple[Expr, Expr] | None:
    """Column and row of the comparison where all a store gives is zero, or nothing of a maximum, where it fails."""
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
    """Whether a choice only keeps what lies behind the end of a row out of a maximum."""
    return bool(value.args[2].is_const and value.args[2].value == float("-inf"))


class _Block:
    """A parallel loop over blocks of rows."""

    def __init__(self, loop: For) -> None:
        self.body, self._around = loop.body, {loop.var: loop.extent}
        self.stores = list(_stores(loop.body, ()))
        self.extents: dict[str, Expr] = {}
        """New extents of loops, by their variables."""

    def shortened(self) -> Stmt:
        """The body with fewer iterations."""
        for store, loops in self.stores:
            if store.reducer is None and _masked(store) is not None:
                self._zeros(store, loops)
        return self._rebuilt(self.body)

    def _zeros(self, store: Store, loops: Loops) -> None:
        """Shortens what makes, reads and leads to a buffer that is zero where a comparison fails."""
        mask = self._mask(store, loops)
        if mask is None or not _alike(mask.column, store.indices[-1]) or len(self._writing(store.buffer)) != 1:
            return
        readers = [(s, around) for s, around in self.stores if _reads(s, store.buffer)]
        sums = [self._summed(reader, around, store.buffer) for reader, around in readers]
        for along in sums:
            if along is not None:
                self._end(along, mask.seen)
        own, steps = _loop_of(store.indices[-1], loops), [along[1] for along in sums if along is not None]
        # Where somebody reads all of a row there are zeros for him; vectors of sums may reach beyond what is seen.
        if own is not None and steps and len(steps) == len(readers) and self._alone(own[0], {store.buffer}):
            self._end(own, mask.seen + (max(steps) - 1))
        for source in dict.fromkeys(n.args[0] for n in walk(store.value) if n.op == "load"):
            self._source(str(source), mask)

    def _source(self, name: str, mask: _Mask) -> None:
        """Shortens what makes a buffer that is read under the mask alone, and the maxima of it."""
        writing, reading = self._writing(name), [(s, around) for s, around in self.stores if _reads(s, name)]
        if len(writing) != 1 or not all(self._under(mask, name, reader, around) for reader, around in reading):
            return
        store, loops = writing[0]
        own = _loop_of(store.indices[-1], loops)
        if own is None or not self._alone(own[0], {name}):
            return
        self._end(own, mask.seen)
        for reader, around in reading:
            masked = _masked(reader)
            along = _loop_of(masked[0], around) if masked is not None and reader.reducer == "max" else None
            if along is not None and self._alone(along[0], {reader.buffer}):
                self._end(along, mask.seen)

    def _mask(self, store: Store, loops: Loops) -> _Mask | None:
        """Of a store; None where its comparison is another one, or a row may see no column."""
        found = _masked(store)
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
        """Whether a store reads a buffer in one place alone, where the same mask as another one's holds."""
        own = self._mask(reader, loops)
        places = [n.args[-1] for n in walk(reader.value) if n.op == "load" and n.args[0] == name]
        return own is not None and own.seen is mask.seen and len(places) == 1 and _alike(own.column, places[0])

    def _summed(self, reader: Store, loops: Loops, name: str) -> tuple[For, int, Expr] | None:
        """The loop of a sum along what a buffer holds, as `_loop_of` has it; None of what is no such sum."""
        places = [n for n in walk(reader.value) if n.op == "load" and n.args[0] == name]
        if reader.reducer != "sum" or len(places) != 1 or not _factor(reader.value, places[0]):
            return None
        own = _loop_of(places[0].args[-1], loops)
        return own if own is not None and self._alone(own[0], {reader.buffer}) else None

    def _end(self, own: tuple[For, int, Expr], seen: Expr) -> None:
        loop, step, before = own
        self.extents[loop.var] = _shorter(loop.extent, seen, step, before)

    def _alone(self, loop: For, written: set[str]) -> bool:
        """Whether all that a loop writes besides is its own."""
        own = {s.buffer.name for s in walk_stmt(loop) if isinstance(s, Allocate)}
        stores = [s for s in walk_stmt(loop) if not isinstance(s, (For, Seq, Allocate))]
        return all(isinstance(s, Store) and s.buffer in own | written for s in stores)

    def _writing(self, name: str) -> list[tuple[Store, Loops]]:
        return [(s, around) for s, around in self.stores if s.buffer == name]

    def _rebuilt(self, stmt: Stmt) -> Stmt:
        stmt = map_children(stmt, self._rebuilt)
        if isinstance(stmt, For) and stmt.var in self.extents:
            return replace(stmt, extent=self.extents[stmt.var])
        return stmt


def _stores(stmt: Stmt, loops: Loops) -> Iterator[tuple[Store, Loops]]:
    """Every store, and the loops around it."""
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
    """Whether an expression grows with each of the loops that it has: a sum, or a quotient of one."""
    if row.op == "floordiv" and row.args[1].is_const and row.args[1].value > 0:
        return _grows(row.args[0], inner)
    for monomial, factor in poly(row).items():
        names = {name for atom in monomial for name in variables(atom)} & inner.keys()
        if names and not (len(monomial) == 1 and monomial[0].op == "var" and factor > 0):
            return False
    return True


def _loop_of(index: Expr, loops: Loops) -> tuple[For, int, Expr] | None:
    """The serial loop that an index goes along, its step, and what the index begins with.

    A tile that begins earlier at the end of a row covers what is left of it, so it counts as if it did not.
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


def _factor(value: Expr, place: Expr) -> bool:
    """Whether a sum's term is zero where what it reads at a place is."""
    if value is place:
        return True
    if value.op == "mul":
        return any(_factor(side, place) for side in value.args)
    if value.op == "select":
        return _factor(value.args[1], place) and value.args[2].is_const and value.args[2].value == 0
    return False


def _shorter(extent: Expr, seen: Expr, step: int, before: Expr) -> Expr:
    """Iterations up to the last that begins with a column that is seen."""
    last = canon(seen - before + (step - 1)) // step
    return maximum(minimum(extent, last), 0)
