"""GPUs: a product tiled over blocks, virtual threads, threads and registers, its factors in shared memory.

The structure is Ansor's SSSRRSRS: a block of threads accumulates a tile of the output in registers over the whole
reduction, and each step copies a tile of each factor to shared memory; the epilogue is fused. The copy gathers the
windows of a convolution, so that its `im2col` definition is an implicit product of matrices.
"""

from __future__ import annotations

from dataclasses import dataclass

from search_space.hardware import Hardware
from search_space.ir.expr import Expr, dtype_bytes, lift, variables
from search_space.lower.blocks import PIPELINE
from search_space.machines.gpu.blocks import (
    VECTORS,
    Number,
    Threads,
    add_divisor_limit,
    add_limit,
    copy_to_shared,
    fragment,
    require_gpu,
    with_threads,
)
from search_space.machines.gpu.products import (
    SHORT,
    Product,
    find_product,
    longest_extent,
    row_dimension,
    split_parts,
    two_factors,
)
from search_space.schedule.builder import Loop
from search_space.schedule.state import Stage
from search_space.sketch.base import Draft, SketchRule
from search_space.sketch.tables import MAX_WASTE, ceildiv, divisors

THREADS = (1, 2, 4, 8, 16, 32, 64, 128)
"""Numbers of threads of a block along each side of the output."""
MANY = 64
"""Extent up to which an axis is also divided among any number of threads that divides it."""
REGISTER_TILES = tuple(range(1, 9))
"""Accumulators of a thread along each side of the output, for each virtual thread."""
VIRTUAL = (1, 2, 4)
"""Numbers of virtual threads along each side: parts of a thread's tile, as far apart as the threads reach."""
MAX_TILE = 256
"""Greatest number of elements of a block's tile along one axis."""
MAX_SUMS = 128
"""Greatest number of accumulators of a thread."""
MAX_UNROLL = 512
"""Greatest number of multiply-adds in an unrolled body: more compile slowly and exceed the instruction cache."""
DEPTHS = (4, 8, 16, 32, 64)
"""Extents of the reduction in one step, whose tiles are in shared memory together."""
UNROLLS = (1, 2, 4, 8)
"""Products of the reduction in one unrolled body."""
PADS = (0, 4, 8)
"""Pads between the rows of a tile in shared memory, in words of 4 bytes."""
FEW = 8
"""Number of dividing tiles below which tiles that do not divide the extent are tried, too."""


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
        axis: axis that is split over steps; other axes are part of a step as a whole, or fixed in it.
        tile, unroll, vector: elements of that axis in a step, in an unrolled body, and in a vector of it.
    """

    outer: Loop
    inner: tuple[Loop, ...]
    axis: str
    tile: Expr
    unroll: Number
    vector: Number


class GpuTiling(SketchRule):
    """A rule that tiles a sum of products together with its epilogue.

    Variants: the left factor's tile by rows, or by columns so that a thread reads its rows as a vector; one buffer, or
    two, of which one is filled while the other is read.
    """

    name = "gpu_tiling"

    def matches(self, draft: Draft, stage: Stage, hardware: Hardware) -> bool:
        return find_product(draft, stage) is not None

    def apply(self, draft: Draft, stage: Stage, hardware: Hardware) -> list[Draft]:
        product = find_product(draft, stage)
        assert product is not None
        gpu = require_gpu(hardware)
        split = split_parts(draft, product, hardware)
        draft, sums = draft.sums_in("local", product.sums.name, stage.name)
        draft, row, column, most = self.sides(draft, product)
        threads = Threads(row.threads, column.threads)
        draft, place = self.output(draft, product, row, column)
        draft, depth = self.reduction(draft, product, sums, row, column, place)
        accumulators = row.sums * column.sums
        draft = add_limit(draft, "accumulators", accumulators, MAX_SUMS)
        draft = add_limit(draft, "unrolled operations", accumulators * depth.unroll, MAX_UNROLL)
        out: list[Draft] = split
        for by_columns in (False, True) if product.rows and product.rows[0].extent.value > 1 else (False,):
            fragments = row.sums * (1 if by_columns else depth.unroll) + column.sums
            done = with_threads(draft, threads.count, accumulators + fragments, gpu, most)
            done = self.factors(done, product, sums, (row, column), depth, by_columns, hardware)
            label = "columns" if by_columns else "rows"
            out.append(done.variant(label).finish(stage.name, sums))
            doubled = done.pragma(sums, depth.outer, PIPELINE, 2)
            out.append(doubled.variant(f"{label}/double").finish(stage.name, sums))
        return out

    # ------------------------------------------------------------------ the output
    def sides(self, draft: Draft, product: Product) -> tuple[Draft, _Side, _Side, int]:
        """Decides tile factors of rows and columns; returns the most threads that a block may have."""
        name, column = product.output.name, int(product.columns.extent.value)
        row = int(product.rows[0].extent.value) if product.rows else 1
        sides, most = [], 1
        for label, extent, vectors in (("rows", row, False), ("columns", column, True)):
            rows = side_tiles(extent, vectors)
            most *= max(threads for _, threads, *_ in rows)
            draft, values = draft.choose_row(f"{name}.{label}", ("virtual", "threads", "vectors", "vector"), rows)
            sides.append(_Side(*values))
        return draft, sides[0], sides[1], most

    def output(self, draft: Draft, product: Product, row: _Side, column: _Side) -> tuple[Draft, Loop]:
        """Makes the output's loops; returns the loop of threads inside which a thread's tile is computed."""
        name = product.output.name
        draft, around, rows, columns = product.fused_rows(draft)
        i: tuple[Loop, ...] = ()
        if rows is not None:
            draft, i = draft.split(name, rows, (row.virtual, row.threads, row.registers), "guard")
        widths = (column.virtual, column.threads, column.vectors, column.vector)
        draft, (*j, lane) = draft.split(name, columns, widths, "guard")
        blocks, virtual, threads, registers = zip(*(side for side in (i, j) if side), strict=True)
        draft = draft.reorder(name, *around, *blocks, *virtual, *threads, *registers, lane)
        draft, block = draft.fuse(name, (*around, *blocks))
        draft = draft.bind(name, block, "blockIdx.x").annotate(name, "vthread", *virtual)
        for thread, tag in zip(threads, ("threadIdx.y", "threadIdx.x")[-len(threads) :], strict=True):
            draft = draft.bind(name, thread, tag)
        return draft.in_registers(name, (*registers, lane)), threads[-1]

    # ------------------------------------------------------------------ the sum
    def reduction(
        self, draft: Draft, product: Product, sums: str, row: _Side, column: _Side, loop: Loop
    ) -> tuple[Draft, _Depth]:
        """Makes the loops of the sum, inside the loop `loop` of the output."""
        name, stage = product.output.name, draft.stage(sums)
        draft = draft.compute_at(sums, name, loop)
        reduced = list(stage.reduce_axes)
        short: list[Loop] = []
        while len(reduced) > 1 and reduced[-1].extent.is_const and int(reduced[-1].extent.value) < SHORT:
            short.insert(0, reduced.pop().name)
        axis = reduced.pop()
        extent = longest_extent(draft, axis)
        rows = depth_tiles(extent)
        draft, (steps, vectors, vector) = draft.choose_row(f"{name}.{axis.name}", ("steps", "vectors", "vector"), rows)
        unroll = lift(vectors) * vector
        tail = "exact" if all(extent % (s * u * v) == 0 for s, u, v in rows) else "guard"
        draft, (r0, r1, r2) = draft.split(sums, axis.name, (steps, unroll), tail)
        outer, inner = (*(a.name for a in reduced), r0), (r1, *short, r2)
        draft = draft.reorder(sums, *outer, *inner, *stage.spatial)
        draft, over_steps = draft.fuse(sums, outer)
        draft = draft.unroll(sums, r2, *stage.spatial)
        return draft, _Depth(over_steps, inner, axis.name, lift(steps) * unroll, unroll, vector)

    def factors(
        self,
        draft: Draft,
        product: Product,
        sums: str,
        sides: tuple[_Side, _Side],
        depth: _Depth,
        by_columns: bool,
        hardware: Hardware,
    ) -> Draft:
        """Copies the factors' tiles to shared memory, and a thread's part of them to registers."""
        name, reader, (row, column) = product.output.name, (sums, depth.outer), sides
        threads = Threads(row.threads, column.threads)
        for label, tensor in (("left", product.left), ("right", product.right)):
            source = draft.state.input(tensor) or draft.stage(tensor)
            shape = [int(e) if isinstance(e, int) else int(e.value) for e in source.shape]
            widest = 16 // dtype_bytes(source.dtype)
            vectors = [v for v in (*VECTORS, 8, 16) if v <= widest and shape[-1] % v == 0]
            draft, vector = draft.choose(f"{name}.{label}.vector", vectors)
            pads = [p * widest // 4 for p in PADS]  # whole vectors of them
            draft, pad = draft.choose(f"{name}.{label}.pad", pads)
            last = self.last_extent(product, tensor, depth, column)
            draft = add_divisor_limit(draft, f"vectors of {tensor}", last, vector)
            order = None
            turned = by_columns and label == "left"
            if turned:
                first = row_dimension(product)  # it becomes the last one
                order = (*range(first), *range(first + 1, len(shape)), first)
            draft, copy = copy_to_shared(draft, tensor, reader, threads, vector, order, pad)
            inner = depth.inner[-1] if by_columns or label == "right" else depth.inner[-2]
            if label == "right":
                width = column.vector
            else:
                width = row.vector if turned else depth.vector
            draft = fragment(draft, copy, (sums, inner), width)
        return draft

    def last_extent(self, product: Product, tensor: str, depth: _Depth, column: _Side) -> Expr:
        """Returns the length of a factor's tile along its last dimension."""
        factors = two_factors(product.sums.body)
        assert factors is not None
        (index,) = {f.args[-1] for f in factors if f.args[0] == tensor}
        along = variables(index)
        if product.columns.name in along:
            return column.tile
        axis = next((a for a in product.sums.reduce_axes if a.name in along), None)
        if axis is None:
            return lift(1)
        if axis.name == depth.axis:
            return depth.tile
        return axis.extent if axis.name in depth.inner else lift(1)


def side_tiles(extent: int, vectors: bool) -> list[tuple[int, int, int, int]]:
    """Lists (virtual threads, threads, vectors of a thread, elements in a vector) of one side of the output.

    Args:
        vectors: whether vectors are stored along it: they must divide the extent, so that no vector is cut.
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
    """Lists (unrolled bodies of a step, vectors in one, elements in a vector) of the reduction's tile.

    They are divisors of the extent; if these are few, also slightly longer tiles, padded with zeros.
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
