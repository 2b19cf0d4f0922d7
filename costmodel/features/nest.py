"""A statement on a tape: trip counts, footprints and working sets at every level of its loops."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import cached_property
from typing import Any, TypeVar

from costmodel.features.spans import Spans, step
from costmodel.features.statement import Access, Loop, Statement
from search_space.dtypes import NARROW
from search_space.hardware import LINE
from search_space.ir.columns import Columns
from search_space.ir.expr import Expr, dtype_bytes, var, variables, walk
from search_space.ir.tape import Value

T = TypeVar("T")


class Nest:
    """Quantities of one statement, each a column or one a level.

    Level i is what runs inside the first i runtime loops; the last level is the unrolled and vectorized body. A loop
    that runs once adds a level equal to the next, so that nothing may depend on how many levels there are.

    Attributes:
        extents: of all loops.
        levels: the runtime loops.
        trips: by level, how often it runs.
    """

    def __init__(self, statement: Statement, columns: Columns) -> None:
        self.statement, self.columns, self.tape = statement, columns, columns.tape
        self.extents: list[Value] = [columns(loop.extent).most(0) for loop in statement.loops]
        runtime = [i for i, loop in enumerate(statement.loops) if loop.runtime]
        self.levels: list[Loop] = [statement.loops[i] for i in runtime]
        self.level_extents = [self.extents[i] for i in runtime]
        self.trips = [self.tape.const(1)]
        for extent in self.level_extents:
            self.trips.append(self.trips[-1] * extent)
        inner = [i for i, loop in enumerate(statement.loops) if not loop.runtime and i > max(runtime, default=-1)]
        starts = [*runtime, inner[0] if inner else len(statement.loops)]
        loops = {loop.var: (i, e) for i, (loop, e) in enumerate(zip(statement.loops, self.extents, strict=True))}
        self._starts, self._loops = starts, loops
        self._spans = Spans(columns, loops, starts)
        self._dims: dict[Access, list[tuple[list[Value], list[Value]]]] = {}
        self._made: dict[Hashable, Any] = {}
        self.accesses: tuple[Access, ...] = tuple(a for a in statement.accesses if a.memory)
        self.footprints = [self.footprint(a) for a in self.accesses]
        self.working_sets = [self.tape.total(f[i] for f in self.footprints) for i in range(len(starts))]

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """What is made of this nest under a key, made the first time: sketches share nests."""
        if key not in self._made:
            self._made[key] = make()
        found: T = self._made[key]
        return found

    @cached_property
    def iterations(self) -> Value:
        """Executions of the statement, vector lanes counted one by one."""
        return self.tape.product(self.extents)

    @cached_property
    def library(self) -> list[Value] | None:
        """Extents of a library's call, None where there is none."""
        pairs = zip(self.statement.loops, self.extents, strict=True)
        return [extent for loop, extent in pairs if loop.kind == "library"] or None

    def extent_of(self, *kinds: str) -> Value:
        """Product of the extents of all loops of some kinds."""
        return self.product(lambda loop: loop.kind in kinds)

    def product(self, wanted: Callable[[Loop], bool]) -> Value:
        """Product of the extents of the loops for which `wanted` holds."""
        pairs = zip(self.statement.loops, self.extents, strict=True)
        return self.tape.product(e for loop, e in pairs if wanted(loop))

    def runs(self, var: str) -> bool:
        """Whether a variable is that of a loop."""
        return var in self._loops

    def inside(self, var: str) -> int:
        """How many of the levels, from the outermost one on, a loop runs inside of."""
        place = self._loops[var][0]
        return sum(place >= start for start in self._starts)

    def widths(self, index: Expr) -> list[Value] | None:
        """Greatest minus least value of an index, by level; None where it is not bounded."""
        return self._spans(index)

    def over_lanes(self, access: Access) -> bool:
        """Whether what is read or written is a vector of distinct elements."""
        return any(loop.kind == "vectorize" and access.depends(loop.var) for loop in self.statement.loops)

    def dims(self, access: Access) -> list[tuple[list[Value], list[Value]]]:
        """By dimension: (distinct positions by level, width by level)."""
        if access not in self._dims:
            self._dims[access] = self._dims_of(access)
        return self._dims[access]

    def _dims_of(self, access: Access) -> list[tuple[list[Value], list[Value]]]:
        out = []
        for index, size in zip(access.indices, access.buffer.shape, strict=True):
            extent, widths = self.columns(size), self._spans(index)
            moving = [self._loops[v] for v in self._loops if v in variables(index)]
            counts = [self.tape.product(e for at, e in moving if at >= start) for start in self._starts]
            if widths is None:  # positions anywhere, such as those of a gather: one in each iteration
                out.append(([extent.least(c) for c in counts], [extent - 1] * len(self._starts)))
                continue
            widths = [w.least((extent - 1).most(0)) for w in widths]
            out.append(([(w + 1).least(c) for w, c in zip(widths, counts, strict=True)], widths))
        return out

    def elements(self, access: Access) -> list[Value]:
        """Distinct elements touched, by level."""
        dims = self.dims(access)
        return [self.tape.product(d[0][i] for d in dims) for i in range(len(self._starts))]

    def footprint(self, access: Access) -> list[Value]:
        """Bytes touched, in whole cache lines, by level.

        At most the lines of each row (the last dimension; of pairs the last two) by itself, and at most all lines from
        first to last.
        """
        size = dtype_bytes(access.buffer.dtype)
        dims = self.dims(access)
        strides = self.strides(access)
        out = []
        for i in range(len(self._starts)):
            hull = self.tape.total(d[1][i] * s for d, s in zip(dims, strides, strict=True)) + 1
            hull = _lines(hull * size) * LINE
            if dims:
                count, width, others = dims[-1][0][i], dims[-1][1][i], dims[:-1]
                if others and in_pairs(access):
                    count, width, others = count * others[-1][0][i], others[-1][1][i] * 2 + width, others[:-1]
                row = _lines((width + 1) * size).least(count) * LINE
                hull = hull.least(self.tape.product(d[0][i] for d in others) * row)
            out.append(hull)
        return out

    def strides(self, access: Access) -> list[Value]:
        """Elements between neighbours along each dimension."""
        out = [self.tape.const(1)]
        for size in reversed(access.buffer.shape[1:]):
            out.append(out[-1] * self.columns(size))
        return out[: len(access.buffer.shape)][::-1]

    def stride(self, access: Access, var: str) -> Value:
        """Elements the address moves by when the loop `var` goes on by one."""
        moves = (step(i, var, self.columns) * s for i, s in zip(access.indices, self.strides(access), strict=True))
        move = self.tape.total(moves)
        return move.most(self.tape.const(0) - move)

    def carried(self, footprint: Sequence[Value], rounds: Sequence[Value] | None = None) -> list[Value]:
        """Bytes a cache must be brought, by the level whose working set it holds.

        A run of the level finds what the run before it has left: a loop around it that touches nothing new is free,
        and neighbouring tiles share their overlap. So it is the next level outward whose bytes are brought each time.

        Args:
            footprint: bytes touched, by level.
            rounds: of the access, by level; None: each loop goes through its positions once.
        """
        brought = [f * t for f, t in zip(footprint, self.trips, strict=True)]
        out = [brought[0]]
        for i, extent in enumerate(self.level_extents):
            again = brought[i] if rounds is None else brought[i] * rounds[i]
            out.append((extent <= 1).otherwise(out[-1], again))
        return out

    def rounds(self, access: Access) -> list[Value]:
        """How often each runtime loop goes through all positions of an access, from the first to the last.

        A loop over rows and columns that were fused reads a column's constants again in each row: their index has the
        loop's variable modulo the number of columns, and nowhere else. So it is of the last few of more that were
        fused.
        """
        found = []
        remainders = [node for index in access.indices for node in walk(index) if node.op == "mod"]
        for loop, extent in zip(self.levels, self.level_extents, strict=True):
            periods = _periods(access, remainders, loop.var) if remainders else []
            period = self.tape.const(1)
            for each in periods:
                period = period.most(self.columns(each))
            found.append((extent / period).most(1) if periods else self.tape.const(1))
        return found


def _periods(access: Access, remainders: Sequence[Expr], loop: str) -> list[Expr]:
    """After how many iterations the positions of an access are those of the first ones again: the most of these.

    None where it is never.

    Args:
        remainders: in the indices of the access.
    """
    found = [period for node in remainders if (period := _period(node, loop)) is not None]
    if not found or any(_beside(index, loop) for index in access.indices):
        return []
    return list(dict.fromkeys(found))


def _period(e: Expr, loop: str) -> Expr | None:
    """n of `loop % n`, m * n of `loop // m % n`."""
    if e.op != "mod":
        return None
    of, count = e.args
    if of.op == "floordiv" and of.args[0] is var(loop) and loop not in variables(of.args[1]):
        period: Expr = of.args[1] * count
        return period
    return count if of is var(loop) else None


def _beside(e: Expr, loop: str) -> bool:
    """Whether a loop's variable stands elsewhere than as what a remainder is taken of."""
    if loop not in variables(e) or _period(e, loop) is not None:
        return False
    return e.op == "var" or any(_beside(part, loop) for part in e.operands)


def in_pairs(access: Access) -> bool:
    """Whether pairs of 16-bit floats are the last dimension: a row of them is one with the dimension before it."""
    last = access.buffer.shape[-1]
    return access.buffer.dtype in NARROW and last.is_const and bool(last.value == 2)


def _lines(size: Value) -> Value:
    """Cache lines of so many bytes."""
    return size.ceildiv(LINE)
