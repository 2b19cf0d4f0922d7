"""GPUs: sums of products of two factors, common to the rules that tile them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from search_space.hardware import Hardware
from search_space.ir.expr import Expr, var, variables, walk
from search_space.ir.polynomial import canon
from search_space.ir.rounding import TFLOAT32, rounds
from search_space.machines.gpu.blocks import require_gpu, same_elements
from search_space.schedule.builder import Loop
from search_space.schedule.state import Axis, Stage
from search_space.sketch.base import Draft
from search_space.sketch.reads import ends_in
from search_space.sketch.tables import MAX_WASTE, ceildiv

PARTS = (2, 4, 8, 16, 32)
"""Numbers of parts that a reduction is split into, each in blocks of its own."""
LEAST_PART = 128
"""Fewest products that a part adds up."""
FEW_TILES = 2
"""Tiles of 64x64 for each multiprocessor, below which reductions are split."""
SHORT = 8
"""A reduce axis shorter than this is part of a step as a whole."""


@dataclass(frozen=True)
class Product:
    """A sum of products of two factors, and the output it ends in.

    Attributes:
        sums: the reduction; output: stage that its epilogue computes, maybe itself.
        left, right: names of the factors; the columns of the output run along the right one's.
        batch, rows: axes of the reduction that both factors have, and that the left one has alone; the last is columns.
        part: reduce loop over a part of a longer one: past its end are the terms of the next part, not zeros; None for
            a whole reduction.
    """

    sums: Stage
    output: Stage
    left: str
    right: str
    batch: tuple[Axis, ...]
    rows: tuple[Axis, ...]
    part: Loop | None

    @property
    def columns(self) -> Axis:
        return self.sums.axes[-1]

    @property
    def output_axes(self) -> tuple[list[str], list[str], str]:
        """Names of the output's axes: around a tile, those that form its rows together, and the columns.

        Axes of extent 1 are around it. If they were fused with others, their indices would be divisions; only the range
        of the fused index shows them to be 0, and a guarded tile exceeds that range.
        """
        batch, rows = self.output.axes[: len(self.batch)], self.output.axes[len(self.batch) : -1]
        long = [a.name for a in rows if a.extent.value > 1] or [a.name for a in rows[-1:]]
        around = [a.name for a in (*batch, *rows) if a.name not in long]
        return around, long, self.output.axes[-1].name

    def list_steps(self, axis: Axis, extent: int, counts: Sequence[int], depth: int) -> list[tuple[int]]:
        """Lists multiples of `depth` for a step along a reduce axis: they waste little, or nothing in a part."""
        rows = []
        for count in counts:
            past = ceildiv(extent, count * depth) * count * depth
            if past == extent or not (axis.name == self.part or (count > 1 and past > extent * MAX_WASTE)):
                rows.append((count,))
        return rows

    def fused_rows(self, draft: Draft) -> tuple[Draft, list[Loop], Loop | None, Loop]:
        """Returns the output's loops: around a tile, over its rows, which are fused, and over its columns."""
        around, rows, columns = self.output_axes
        if not rows:
            return draft, around, None, columns
        order = (*around, *rows, columns)
        if len(rows) > 1 and order != self.output.leaves:
            draft = draft.reorder(self.output.name, *order)
        draft, fused = draft.fuse(self.output.name, rows)
        return draft, around, fused, columns


def find_product(draft: Draft, stage: Stage) -> Product | None:
    """Finds the product that `stage` ends; None for other stages."""
    sums: Stage | None = stage
    if stage.reducer is None:
        found = [r for r in draft.producers(stage) if r.reducer is not None]
        sums = found[0] if len(found) == 1 and ends_in(draft, found[0], stage) else None
        if sums is not None and not same_elements(draft, sums, stage):
            sums = None
    if sums is None or sums.reducer != "sum" or not sums.axes or not sums.reduce_axes:
        return None
    factors = two_factors(sums.body)
    if factors is None:
        return None
    used = [{v for i in f.args[1:] for v in variables(i)} for f in factors]
    columns = sums.axes[-1].name
    if (columns in used[0]) == (columns in used[1]):
        return None
    right = 0 if columns in used[0] else 1
    left = 1 - right
    if any(a.name not in used[0] | used[1] for a in sums.reduce_axes):
        return None
    rows = tuple(a for a in sums.axes[:-1] if a.name not in used[right])
    batch = tuple(a for a in sums.axes[:-1] if a not in rows)
    if any(a.name not in used[left] for a in (*rows, *batch)) or (rows and sums.axes[-2] is not rows[-1]):
        return None
    moving = {a.name for a in (*rows, sums.axes[-1], *sums.reduce_axes)}
    plain = all(one_axis(i, moving) for f in factors for i in f.args[1:])
    if len(rows) > 1 or not plain or factors[left].args[0] == factors[right].args[0]:
        return None
    tensors = [str(factors[side].args[0]) for side in (left, right)]
    return Product(sums, stage, tensors[0], tensors[1], batch, rows, draft.parts.get(sums.name))


def split_parts(draft: Draft, product: Product, hardware: Hardware, multiple: int = 1) -> list[Draft]:
    """Splits the reduction if the output has too few tiles for all multiprocessors; a second kernel adds the parts.

    The parts become a product of their own, with the part as an additional axis.

    Args:
        multiple: divisor of the parts' length.
    """
    if product.part is not None or not all(a.extent.is_const for a in product.sums.reduce_axes):
        return []
    axis = max(product.sums.reduce_axes, key=lambda a: int(a.extent.value))
    extent, depth = int(axis.extent.value), prod(int(a.extent.value) for a in product.sums.reduce_axes)
    count = prod(int(a.extent.value) for a in product.sums.axes)
    lengths = [
        extent // p
        for p in PARTS
        if extent % p == 0 and depth // p >= LEAST_PART and extent // p >= SHORT and extent // p % multiple == 0
    ]
    if not lengths or count > FEW_TILES * require_gpu(hardware).sms * 64 * 64:
        return []
    return [in_parts(draft, product.sums, axis, lengths)]


def in_parts(draft: Draft, sums: Stage, axis: Axis, lengths: Sequence[int]) -> Draft:
    """Splits a reduction into parts, each a stretch of `axis`, in a stage of their own with the part as first axis."""
    name = sums.name
    draft, length = draft.choose(f"{name}.{axis.name}.part", lengths)
    draft, (parts, part) = draft.split(name, axis.name, (length,))
    draft, partial = draft.rfactor(name, parts)
    dims = len(sums.axes)
    draft = draft.relayout(partial, (dims, *range(dims))).variant("split")
    return replace(draft, parts={**draft.parts, partial: part})


def find_factor(product: Product, tensor: str) -> tuple[Expr, list[frozenset[str]]]:
    """Returns the read of a factor, and the names in each of its indices."""
    factors = two_factors(product.sums.body)
    assert factors is not None
    (read,) = (f for f in factors if f.args[0] == tensor)
    return read, [frozenset(variables(i)) for i in read.args[1:]]


def get_factor_dtype(product: Product, tensor: str) -> str:
    """Returns the type in which a factor is multiplied: that in memory, or tfloat32 if it is rounded to that."""
    read, _ = find_factor(product, tensor)
    rounded = any(e.op == "call" and e.args[0] == TFLOAT32 and read in walk(e) for e in walk(product.sums.body))
    return TFLOAT32 if rounded else read.dtype


def row_dimension(product: Product) -> int:
    """Returns the dimension of the left factor along which the rows run."""
    _, along = find_factor(product, product.left)
    return next(d for d, names in enumerate(along) if product.rows[0].name in names)


def one_axis(index: Expr, others: set[str]) -> bool:
    """Tells whether an index is one of the axes `others`, maybe after an offset that none of them changes."""
    axes = variables(index) & others
    if len(axes) != 1:
        return index.op == "var"
    (axis,) = axes
    return axis not in variables(canon(index - var(axis)))


def longest_extent(draft: Draft, axis: Axis) -> int:
    """Returns an axis's extent; the longest if the extent is a decision."""
    return max(_extents(draft, axis))


def any_whole(draft: Draft, axis: Axis, part: int) -> bool:
    """Tells whether any extent that an axis can have is a multiple of `part`."""
    return any(extent % part == 0 for extent in _extents(draft, axis))


def _extents(draft: Draft, axis: Axis) -> list[int]:
    """Lists the extents that an axis can have."""
    if axis.extent.is_const:
        return [int(axis.extent.value)]
    tables = {c: g.table[:, i] for g in draft.groups for i, c in enumerate(g.columns)}
    return [int(e) for e in tables[str(axis.extent.args[0])]]


def two_factors(body: Expr) -> tuple[Expr, Expr] | None:
    """Returns the loads whose product `body` is, casts and roundings ignored; None for other expressions."""
    while body.op == "cast":
        body = body.args[0]
    if body.op != "mul":
        return None
    loads = []
    for side in body.args:
        while rounds(side):
            side = side.operands[0]
        if side.op != "load":
            return None
        loads.append(side)
    return loads[0], loads[1]
