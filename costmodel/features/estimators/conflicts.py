"""Conflicts in cache sets: lines a multiple of a way apart share a set, and evict each other before a cache is full.

If pixels are 4 KiB apart (1,024 channels of float32), a cache of 64 sets holds only as many of them as it has ways.
This does not depend on how many bytes of each are read.
"""

from __future__ import annotations

import math

from costmodel.features.nest import Nest
from costmodel.features.statement import Access
from search_space.hardware import LINE
from search_space.ir.expr import Expr, dtype_bytes, variables
from search_space.ir.tape import Value


def crowding(nest: Nest, access: Access, way_bytes: int) -> list[Value] | None:
    """Returns the bytes of a cache that an access wastes beyond its footprint, by level; None if it uses all sets.

    The lines of a level fall on some of the sets. Their demand there, beyond one way and beyond that of as many lines
    spread evenly, is lost to everything else.

    Args:
        access: access to an array; one of unknown shape is assumed to use the sets evenly.
        way_bytes: bytes of one way: sets times the bytes of a line.
    """
    shape = access.buffer.shape
    if len(shape) < 2 or not all(size.is_const for size in shape):
        return None
    strides, step = [], dtype_bytes(access.buffer.dtype)
    for size in reversed(shape):
        strides.append(step)
        step *= int(size.value)
    strides.reverse()
    periods = [_periods(nest, index, stride, way_bytes) for index, stride in zip(access.indices, strides, strict=True)]
    sets = way_bytes // LINE
    if all(min(period) >= sets for period in periods[:-1]):
        return None
    dims, footprint = nest.dims(access), nest.footprints[nest.accesses.index(access)]
    out = []
    for level in range(len(nest.trips)):
        count, width = dims[-1][0][level], dims[-1][1][level]
        row = ((width + 1) * strides[-1]).ceildiv(LINE).least(count)
        reached, together = row, row
        for (counts, _), period in zip(dims[:-1], periods[:-1], strict=True):
            reached = reached * counts[level].least(period[level])
            together = together.most((counts[level] <= 1).otherwise(row, row * period[level]))
        reached = reached.least(together)  # dimensions whose strides share a factor use the same sets
        lines = footprint[level] / LINE
        reached = reached.least(sets).least(lines).most(1)
        alone = lines / reached  # ways that these sets need
        even = (lines / sets).most(1)
        out.append((alone - even).most(0) * way_bytes)
    return out


def _periods(nest: Nest, index: Expr, stride: int, way_bytes: int) -> list[int]:
    """Returns by level after how many positions of an index the sets repeat."""
    steps = [(nest.inside(var), content(index, var)) for var in variables(index) if nest.runs(var)]
    out = []
    for level in range(len(nest.trips)):
        apart = stride * max(1, math.gcd(*(by for inside, by in steps if inside > level)))
        out.append(way_bytes // math.gcd(apart, way_bytes))
    return out


def content(e: Expr, var: str) -> int:
    """Returns a number that divides each step of `e` when `var` increases by one; 0 if `e` does not change."""
    if e.op == "load":
        return 1
    if var not in variables(e):
        return 0
    if e.op == "var":
        return 1
    if e.op == "mul":
        left, right = e.args
        factor, other = (left, right) if left.op == "const" else (right, left)
        return content(other, var) * abs(int(factor.value)) if factor.op == "const" else 1
    if e.op in ("add", "sub", "min", "max"):
        return math.gcd(*(content(part, var) for part in e.operands))
    return 1
