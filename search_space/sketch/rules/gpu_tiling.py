"""GPUs: a product tiled over blocks, virtual threads, threads and registers, its factors in shared memory.

The structure is Ansor's SSSRRSRS: a block of threads accumulates a tile of the output in registers over the whole
reduction, one step of which copies a tile of each factor into shared memory; the epilogue is fused. The windows of a
convolution are gathered by the copy, so that its `im2col` definition is an implicit product of matrices.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from search_space.hardware import Hardware
from search_space.ir.expr import Expr, dtype_bytes, lift, var, variables
from search_space.ir.polynomial import canon
from search_space.lower.blocks import PIPELINE
from search_space.schedule.state import Axis, Stage
from search_space.schedule.steps import (
    Annotate,
    CacheWrite,
    ComputeAt,
    Fuse,
    Pragma,
    Relayout,
    Reorder,
    Rfactor,
    SetScope,
    Split,
    Step,
)
from search_space.sketch.base import Draft, SketchRule
from search_space.sketch.rules.gpu_common import (
    VECTORS,
    Number,
    Threads,
    copied,
    divided,
    ends_in,
    fragment,
    gpu_of,
    limited,
    same_elements,
    with_threads,
)
from search_space.sketch.tables import MAX_WASTE, DecisionGroup, ceildiv, divisors

THREADS = (1, 2, 4, 8, 16, 32, 64, 128)
MANY = 64
"""Shorter axes are divided among any number of threads that divides them, too."""
REGISTER_TILES = tuple(range(1, 9))
VIRTUAL = (1, 2, 4)
MAX_TILE = 256
"""Elements of a block's tile along one axis."""
MAX_SUMS = 128
"""Accumulators of a thread."""
MAX_UNROLL = 1024
"""Multiply-adds in one unrolled body: more of them take long to compile and leave the instruction cache."""
DEPTHS = (4, 8, 16, 32, 64)
UNROLLS = (1, 2, 4, 8)
PADS = (0, 4, 8)
PARTS = (2, 4, 8, 16, 32)
"""Into how many parts a reduction is split, each in blocks of its own."""
LEAST_PART = 128
"""Products that a part adds up at least."""
FEW_TILES = 2
"""Tiles of 64x64 for each multiprocessor, below which reductions are split."""
FEW = 8
"""Where an extent has fewer ways to divide it, tiles that do not divide it are tried, too."""
SHORT = 8
"""A reduce axis shorter than this is part of a step as a whole."""


@dataclass(frozen=True)
class Product:
    """A sum of products of two factors, and the output it ends in.

    Attributes:
        sums: the reduction; output: what its end is computed into, maybe itself.
        left, right: names of the factors; the columns of the output run along the right one's.
        batch, rows: axes of the reduction that both factors have, and that the left one has alone; the last is columns.
    """

    sums: Stage
    output: Stage
    left: str
    right: str
    batch: tuple[Axis, ...]
    rows: tuple[Axis, ...]

    @property
    def columns(self) -> Axis:
        return self.sums.axes[-1]


@dataclass(frozen=True)
class _Side:
    """Tile factors of the output along one side: virtual threads, threads, vectors of a thread, elements in each."""

    virtual: Number
    threads: Number
    vectors: Number
    vector: Number

    @property
    def registers(self) -> Expr:
        return lift(self.vectors) * self.vector

    @property
    def sums(self) -> Expr:
        return lift(self.virtual) * self.registers

    @property
    def tile(self) -> Expr:
        return self.sums * self.threads


@dataclass(frozen=True)
class _Depth:
    """A step of the reduction.

    Attributes:
        outer: the loop over steps; inner: loops of a step, the unrolled one last.
        axis: the one that is split over steps; others are part of a step as a whole, or stand still in it.
        tile, unroll, vector: elements of that axis in a step, in an unrolled body, and in a vector of it.
    """

    outer: str
    inner: tuple[str, ...]
    axis: str
    tile: Expr
    unroll: Number
    vector: Number


class GpuTiling(SketchRule):
    """Tiles a sum of products together with its epilogue.

    Variants: the left factor's tile by rows, or by columns so that a thread reads its rows as a vector; one buffer, or
    two, the next of which is filled while the other is read.
    """

    name = "gpu_tiling"

    def matches(self, draft: Draft, stage: Stage, hardware: Hardware) -> bool:
        return hardware.gpu is not None and self.product(draft, stage) is not None

    def product(self, draft: Draft, stage: Stage) -> Product | None:
        """The product that `stage` ends; None where it is something else."""
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
        return Product(sums, stage, str(factors[left].args[0]), str(factors[right].args[0]), batch, rows)

    def apply(self, draft: Draft, stage: Stage, hardware: Hardware) -> list[Draft]:
        found = self.product(draft, stage)
        assert found is not None
        gpu = gpu_of(hardware)
        split = self.split(draft, found, hardware)
        if found.sums is stage:
            draft = draft.apply(CacheWrite(stage.name, "local"))
            sums = draft.state.stages[draft.state.stages.index(draft.state.stage(stage.name)) - 1].name
        else:
            draft = draft.apply(SetScope(found.sums.name, "local"))
            sums = found.sums.name
        draft, row, column, most = self.sides(draft, found)
        threads = Threads(row.threads, column.threads)
        draft, place = self.output(draft, found, row, column)
        draft, depth = self.reduction(draft, found, sums, row, column, place)
        accumulators = row.sums * column.sums
        fragments = row.registers * depth.vector + column.registers
        draft = limited(draft, "accumulators", accumulators, MAX_SUMS)
        draft = limited(draft, "unrolled operations", accumulators * depth.unroll, MAX_UNROLL)
        draft = with_threads(draft, threads.count, accumulators + fragments, gpu, most)
        out: list[Draft] = split
        for by_columns in (False, True) if found.rows and found.rows[0].extent.value > 1 else (False,):
            done = self.factors(draft, found, sums, (row, column), depth, by_columns, hardware)
            label = "columns" if by_columns else "rows"
            out.append(done.variant(label).finish(stage.name, sums))
            doubled = done.apply(Pragma(sums, depth.outer, PIPELINE, 2))
            out.append(doubled.variant(f"{label}/double").finish(stage.name, sums))
        return out

    def split(self, draft: Draft, found: Product, hardware: Hardware) -> list[Draft]:
        """Where the output has too few tiles to go round: parts of the reduction, added up by a second kernel.

        The parts become a product of their own, with the part as one more axis of it.
        """
        if not all(a.extent.is_const for a in (*found.sums.axes, *found.sums.reduce_axes)):
            return []  # parts themselves
        axis = max(found.sums.reduce_axes, key=lambda a: int(a.extent.value))
        extent, depth = int(axis.extent.value), prod(int(a.extent.value) for a in found.sums.reduce_axes)
        count = prod(int(a.extent.value) for a in found.sums.axes)
        lengths = [
            (extent // p,) for p in PARTS if extent % p == 0 and depth // p >= LEAST_PART and extent // p >= SHORT
        ]
        if not lengths or count > FEW_TILES * gpu_of(hardware).sms * 64 * 64:
            return []
        name = found.sums.name
        group = DecisionGroup.of(f"{name}.{axis.name}.part", (f"{name}.{axis.name}.part",), lengths)
        draft, (length,) = draft.decide(group)
        before = {s.name for s in draft.state.stages}
        draft = draft.apply(Split(name, axis.name, (length,), "exact"), Rfactor(name, f"{axis.name}.0"))
        (partial,) = (s.name for s in draft.state.stages if s.name not in before)
        dims = len(found.sums.axes)
        return [draft.apply(Relayout(partial, (dims, *range(dims)))).variant("split")]

    # ------------------------------------------------------------------ the output
    def sides(self, draft: Draft, found: Product) -> tuple[Draft, _Side, _Side, int]:
        """Tile factors of rows and columns, and the most threads that a block may have."""
        name, column = found.output.name, int(found.columns.extent.value)
        row = int(found.rows[0].extent.value) if found.rows else 1
        sides, most = [], 1
        for label, extent, vectors in (("rows", row, False), ("columns", column, True)):
            columns = tuple(f"{name}.{label}.{x}" for x in ("virtual", "threads", "vectors", "vector"))
            rows = side_tiles(extent, vectors)
            most *= max(threads for _, threads, *_ in rows)
            draft, values = draft.decide(DecisionGroup.of(f"{name}.{label}", columns, rows))
            sides.append(_Side(*values))
        return draft, sides[0], sides[1], most

    def output(self, draft: Draft, found: Product, row: _Side, column: _Side) -> tuple[Draft, str]:
        """The output's loops, and the loop of threads inside which a thread's tile is computed."""
        name, axes = found.output.name, [a.name for a in found.output.axes]
        batch, rows, last = axes[: len(found.batch)], axes[len(found.batch) : -1], axes[-1]
        i = "_".join(rows)
        steps: list[Step] = [Fuse(name, tuple(rows))] if len(rows) > 1 else []
        if rows:
            steps.append(Split(name, i, (row.virtual, row.threads, row.registers), "guard"))
        steps.append(Split(name, last, (column.virtual, column.threads, column.vectors, column.vector), "guard"))
        levels = [tuple(f"{a}.{level}" for a in (i, last) if a) for level in range(4)]
        outer = (*batch, *levels[0])
        steps.append(Reorder(name, (*outer, *(leaf for level in levels[1:] for leaf in level), f"{last}.4")))
        if len(outer) > 1:
            steps.append(Fuse(name, outer))
        steps.append(Annotate(name, "_".join(outer), "blockIdx.x"))
        steps += [Annotate(name, leaf, "vthread") for leaf in levels[1]]
        if rows:
            steps.append(Annotate(name, f"{i}.2", "threadIdx.y"))
        steps.append(Annotate(name, f"{last}.2", "threadIdx.x"))
        steps += [Annotate(name, leaf, "unroll") for leaf in levels[3]]
        steps.append(Annotate(name, f"{last}.4", "vectorize"))
        return draft.apply(*steps), f"{last}.2"

    # ------------------------------------------------------------------ the sum
    def reduction(
        self, draft: Draft, found: Product, sums: str, row: _Side, column: _Side, place: str
    ) -> tuple[Draft, _Depth]:
        """The loops of the sum, inside the loop `place` of the output."""
        name, stage = found.output.name, draft.state.stage(sums)
        draft = draft.apply(ComputeAt(sums, name, place))
        reduced = list(stage.reduce_axes)
        whole: list[Axis] = []
        while len(reduced) > 1 and reduced[-1].extent.is_const and int(reduced[-1].extent.value) < SHORT:
            whole.insert(0, reduced.pop())
        axis = reduced.pop()
        extent = longest_extent(draft, axis)
        rows = depth_tiles(extent)
        columns = tuple(f"{name}.{axis.name}.{x}" for x in ("steps", "vectors", "vector"))
        draft, (steps, vectors, vector) = draft.decide(DecisionGroup.of(f"{name}.{axis.name}", columns, rows))
        unroll = lift(vectors) * vector
        tail = "exact" if all(extent % (s * u * v) == 0 for s, u, v in rows) else "guard"
        outer = (*(a.name for a in reduced), f"{axis.name}.0")
        inner = (f"{axis.name}.1", *(a.name for a in whole), f"{axis.name}.2")
        spatial = tuple(a.name for a in stage.axes)
        draft = draft.apply(Split(sums, axis.name, (steps, unroll), tail), Reorder(sums, (*outer, *inner, *spatial)))
        if len(outer) > 1:
            draft = draft.apply(Fuse(sums, outer))
        draft = draft.apply(*(Annotate(sums, leaf, "unroll") for leaf in (inner[-1], *spatial)))
        tile = lift(steps) * unroll
        return draft, _Depth("_".join(outer), inner, axis.name, tile, unroll, vector)

    def factors(
        self,
        draft: Draft,
        found: Product,
        sums: str,
        sides: tuple[_Side, _Side],
        depth: _Depth,
        by_columns: bool,
        hardware: Hardware,
    ) -> Draft:
        """Copies of the factors' tiles in shared memory, and of what a thread reads of them in registers."""
        name, place, (row, column) = found.output.name, (sums, depth.outer), sides
        threads = Threads(row.threads, column.threads)
        for label, tensor in (("left", found.left), ("right", found.right)):
            source = draft.state.input(tensor) or draft.state.stage(tensor)
            shape = [int(e) if isinstance(e, int) else int(e.value) for e in source.shape]
            widest = 16 // dtype_bytes(source.dtype)
            vectors = [(v,) for v in (*VECTORS, 8, 16) if v <= widest and shape[-1] % v == 0]
            columns = (f"{name}.{label}.vector",)
            draft, (vector,) = draft.decide(DecisionGroup.of(f"{name}.{label}.vector", columns, vectors))
            draft, (pad,) = self.padding(draft, f"{name}.{label}.pad", widest)
            last = self.last_extent(found, tensor, depth, column)
            draft = divided(draft, f"vectors of {tensor}", last, vector)
            order = None
            turned = by_columns and label == "left"
            if turned:
                first = row_dimension(found)  # it becomes the last one
                order = (*range(first), *range(first + 1, len(shape)), first)
            draft, copy = copied(draft, tensor, place, threads, vector, order, pad)
            inner = depth.inner[-1] if by_columns or label == "right" else depth.inner[-2]
            if label == "right":
                width = column.vector
            else:
                width = row.vector if turned else depth.vector
            draft = fragment(draft, copy, (sums, inner), width)
        return draft

    def padding(self, draft: Draft, name: str, widest: int) -> tuple[Draft, tuple[Number, ...]]:
        """Elements between the rows of a tile, whole vectors of them."""
        return draft.decide(DecisionGroup.of(name, (name,), [(p * widest // 4,) for p in PADS]))

    def last_extent(self, found: Product, tensor: str, depth: _Depth, column: _Side) -> Expr:
        """How long the tile of a factor is along its last dimension."""
        factors = two_factors(found.sums.body)
        assert factors is not None
        (index,) = {f.args[-1] for f in factors if f.args[0] == tensor}
        along = variables(index)
        if found.columns.name in along:
            return column.tile
        axis = next((a for a in found.sums.reduce_axes if a.name in along), None)
        if axis is None:
            return lift(1)
        if axis.name == depth.axis:
            return depth.tile
        return axis.extent if axis.name in depth.inner else lift(1)


def row_dimension(found: Product) -> int:
    """The dimension of the left factor along which the rows run."""
    factors = two_factors(found.sums.body)
    assert factors is not None
    (left,) = (f for f in factors if f.args[0] == found.left)
    return next(d for d, i in enumerate(left.args[1:]) if found.rows[0].name in variables(i))


def one_axis(index: Expr, others: set[str]) -> bool:
    """Whether an index is one of the axes `others`, maybe after a start that none of them changes."""
    axes = variables(index) & others
    if len(axes) != 1:
        return index.op == "var"
    (axis,) = axes
    return axis not in variables(canon(index - var(axis)))


def longest_extent(draft: Draft, axis: Axis) -> int:
    """An axis's extent; the longest of it where it is a decision."""
    if axis.extent.is_const:
        return int(axis.extent.value)
    tables = {c: g.table[:, i] for g in draft.groups for i, c in enumerate(g.columns)}
    return int(max(tables[str(axis.extent.args[0])]))


def two_factors(body: Expr) -> tuple[Expr, Expr] | None:
    """The loads whose product `body` is, casts seen through."""
    while body.op == "cast":
        body = body.args[0]
    if body.op != "mul":
        return None
    found = []
    for side in body.args:
        while side.op == "cast":
            side = side.args[0]
        if side.op != "load":
            return None
        found.append(side)
    return found[0], found[1]


def side_tiles(extent: int, vectors: bool) -> list[tuple[int, int, int, int]]:
    """(virtual threads, threads, vectors of a thread, elements in a vector) of one side of the output.

    Args:
        vectors: whether vectors are stored along it: they must divide the extent, so that none is cut.
    """
    rows = []
    own = divisors(extent) if extent <= MANY else []
    for threads in sorted({*THREADS, *own}):
        for registers in REGISTER_TILES:
            for virtual in VIRTUAL:
                tile = virtual * threads * registers
                if (
                    tile > min(MAX_TILE, max(1, extent * MAX_WASTE))
                    or ceildiv(extent, tile) * tile > extent * MAX_WASTE
                ):
                    continue
                wide = [v for v in VECTORS if registers % v == 0 and (not vectors or extent % v == 0)]
                rows.append((virtual, threads, registers // wide[-1], wide[-1]))
    return rows


def depth_tiles(extent: int) -> list[tuple[int, int, int]]:
    """(unrolled bodies of a step, vectors in one, elements in a vector) of the reduction's tile.

    Divisors of the extent; where these are few, also what is little too long, the rest of which is zeros.
    """
    rows = []
    for exact in (True, False):
        for depth in (*DEPTHS, *((extent,) if extent <= DEPTHS[-1] else ())):
            wasted = ceildiv(extent, depth) * depth
            if wasted != extent if exact else wasted == extent or wasted > extent * MAX_WASTE:
                continue
            for unroll in (*UNROLLS, *((extent,) if extent < SHORT else ())):
                if depth % unroll == 0:
                    wide = max(v for v in VECTORS if unroll % v == 0)
                    rows.append((depth // unroll, unroll // wide, wide))
        if len(rows) >= FEW:
            break
    return rows or [(1, 1, 1)]
