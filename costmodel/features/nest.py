"""A statement on a tape: trip counts, footprints and working sets at each level of its loops."""

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

FEW_READS = 7
"""Greatest number of reads of an array whose lines are counted for each: they overlap little, and the shipped model has
learned from estimates that count so."""


class Nest:
    """Quantities of one statement: columns, or lists of columns with one per level.

    Level i is the code inside the first i runtime loops; the last level is the unrolled and vectorized body. A loop
    that runs once adds a level equal to the next, so that no quantity may depend on the number of levels.

    Attributes:
        extents: extents of all loops.
        levels: the runtime loops.
        trips: executions of each level.
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
        self._cache: dict[Hashable, Any] = {}
        self.accesses: tuple[Access, ...] = tuple(a for a in statement.accesses if a.memory)
        self.footprints = self._list_footprints()
        self.working_sets = [self.tape.total(f[i] for f in self.footprints) for i in range(len(starts))]

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """Returns what `make` makes for a key, and caches it: sketches share nests."""
        if key not in self._cache:
            self._cache[key] = make()
        found: T = self._cache[key]
        return found

    @cached_property
    def iterations(self) -> Value:
        """Executions of the statement, vector lanes counted one by one."""
        return self.tape.product(self.extents)

    @cached_property
    def library(self) -> list[Value] | None:
        """Extents of a library's call; None if the statement has no call."""
        pairs = zip(self.statement.loops, self.extents, strict=True)
        return [extent for loop, extent in pairs if loop.kind == "library"] or None

    def total_extent(self, *kinds: str) -> Value:
        """Returns the product of the extents of all loops of some kinds."""
        return self.product(lambda loop: loop.kind in kinds)

    def product(self, wanted: Callable[[Loop], bool]) -> Value:
        """Returns the product of the extents of the loops for which `wanted` holds."""
        pairs = zip(self.statement.loops, self.extents, strict=True)
        return self.tape.product(e for loop, e in pairs if wanted(loop))

    def runs(self, var: str) -> bool:
        """Tells whether a variable is that of a loop."""
        return var in self._loops

    def inside(self, var: str) -> int:
        """Returns how many of the levels, from the outermost one on, contain a loop."""
        place = self._loops[var][0]
        return sum(place >= start for start in self._starts)

    def widths(self, index: Expr) -> list[Value] | None:
        """Returns the greatest minus the least value of an index, by level; None if unbounded."""
        return self._spans(index)

    def over_lanes(self, access: Access) -> bool:
        """Tells whether an access is a vector of distinct elements."""
        return any(loop.kind == "vectorize" and access.depends(loop.var) for loop in self.statement.loops)

    def dims(self, access: Access) -> list[tuple[list[Value], list[Value]]]:
        """Returns, for each dimension, (distinct positions by level, width by level)."""
        if access not in self._dims:
            self._dims[access] = self._access_dims(access)
        return self._dims[access]

    def _access_dims(self, access: Access) -> list[tuple[list[Value], list[Value]]]:
        out = []
        for index, size in zip(access.indices, access.buffer.shape, strict=True):
            extent, widths = self.columns(size), self._spans(index)
            moving = [self._loops[v] for v in self._loops if v in variables(index)]
            counts = [self.tape.product(e for at, e in moving if at >= start) for start in self._starts]
            if widths is None:  # unbounded, as in a gather: one position per iteration
                out.append(([extent.least(c) for c in counts], [extent - 1] * len(self._starts)))
                continue
            widths = [w.least((extent - 1).most(0)) for w in widths]
            out.append(([(w + 1).least(c) for w, c in zip(widths, counts, strict=True)], widths))
        return out

    def elements(self, access: Access) -> list[Value]:
        """Returns the number of distinct elements touched, by level."""
        dims = self.dims(access)
        return [self.tape.product(d[0][i] for d in dims) for i in range(len(self._starts))]

    def footprint(self, access: Access) -> list[Value]:
        """Returns the bytes touched, in whole cache lines, by level.

        They are at most the lines of all rows (the last dimension; for pairs the last two), and at most those between
        first and last.
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

    def _list_footprints(self) -> list[list[Value]]:
        """Returns the footprint of each access; those of an array with many reads are no larger than it together."""
        out = [self.footprint(access) for access in self.accesses]
        names = [access.buffer.name for access in self.accesses]
        for name in dict.fromkeys(name for name in names if names.count(name) > FEW_READS):
            among = [i for i, other in enumerate(names) if other == name]
            buffer = self.accesses[among[0]].buffer
            size = _lines(self.tape.product(map(self.columns, buffer.shape)) * dtype_bytes(buffer.dtype)) * LINE
            for level in range(len(self._starts)):
                together = self.tape.total(out[i][level] for i in among)
                share = (size / together.most(LINE)).least(1)
                for i in among:
                    out[i][level] = out[i][level] * share
        return out

    def strides(self, access: Access) -> list[Value]:
        """Returns the elements between neighbours along each dimension."""
        out = [self.tape.const(1)]
        for size in reversed(access.buffer.shape[1:]):
            out.append(out[-1] * self.columns(size))
        return out[: len(access.buffer.shape)][::-1]

    def stride(self, access: Access, var: str) -> Value:
        """Returns by how many elements the address moves when the loop `var` advances by one."""
        moves = (step(i, var, self.columns) * s for i, s in zip(access.indices, self.strides(access), strict=True))
        return self.tape.total(moves).magnitude()

    def compute_loaded_bytes(self, footprint: Sequence[Value], rounds: Sequence[Value] | None = None) -> list[Value]:
        """Returns the bytes that a cache must load, by the level whose working set it holds.

        A run of the level reuses data of the run before it. A loop around it that touches nothing new is free, and
        neighbouring tiles share their overlap. So the bytes of the next level outward are loaded each time.

        Args:
            footprint: bytes touched, by level.
            rounds: passes over the access, by level; None: each loop passes through its positions once.
        """
        brought = [f * t for f, t in zip(footprint, self.trips, strict=True)]
        out = [brought[0]]
        for i, extent in enumerate(self.level_extents):
            again = brought[i] if rounds is None else brought[i] * rounds[i]
            out.append((extent <= 1).otherwise(out[-1], again))
        return out

    def rounds(self, access: Access) -> list[Value]:
        """Returns how often each runtime loop passes through all positions of an access, from the first to the last.

        A loop over fused rows and columns reads a column's constants again in each row. Their index has the loop's
        variable only modulo the number of columns. The same applies to the last few of several fused loops.
        """
        passes = []
        remainders = [node for index in access.indices for node in walk(index) if node.op == "mod"]
        for loop, extent in zip(self.levels, self.level_extents, strict=True):
            periods = _periods(access, remainders, loop.var) if remainders else []
            period = self.tape.const(1)
            for each in periods:
                period = period.most(self.columns(each))
            passes.append((extent / period).most(1) if periods else self.tape.const(1))
        return passes


def _periods(access: Access, remainders: Sequence[Expr], loop: str) -> list[Expr]:
    """Lists periods, in iterations, after which the positions of an access repeat; the greatest counts.

    The list is empty if they never repeat.

    Args:
        remainders: remainders in the indices of the access.
    """
    found = [period for node in remainders if (period := _period(node, loop)) is not None]
    if not found or any(_beside(index, loop) for index in access.indices):
        return []
    return list(dict.fromkeys(found))


def _period(e: Expr, loop: str) -> Expr | None:
    """Returns n of `loop % n`, and m * n of `loop // m % n`; None for other expressions."""
    if e.op != "mod":
        return None
    of, count = e.args
    if of.op == "floordiv" and of.args[0] is var(loop) and loop not in variables(of.args[1]):
        period: Expr = of.args[1] * count
        return period
    return count if of is var(loop) else None


def _beside(e: Expr, loop: str) -> bool:
    """Tells whether a loop's variable occurs elsewhere than in a dividend of a remainder."""
    if loop not in variables(e) or _period(e, loop) is not None:
        return False
    return e.op == "var" or any(_beside(part, loop) for part in e.operands)


def in_pairs(access: Access) -> bool:
    """Tells whether pairs of 16-bit floats are the last dimension, which forms rows with the dimension before it."""
    last = access.buffer.shape[-1]
    return access.buffer.dtype in NARROW and last.is_const and bool(last.value == 2)


def _lines(size: Value) -> Value:
    """Returns the cache lines that so many bytes fill."""
    return size.ceildiv(LINE)
