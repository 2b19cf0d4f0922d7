"""GPUs: products by the tensor cores, tiled over blocks, warps and the tiles of one instruction.

A warp accumulates a tile of the output in fragments that its lanes hold together (scope `warp`). A step of the
reduction copies tiles of both factors to shared memory, from which a warp loads fragments, each for many instructions.
The epilogue is computed by the lanes, each on the elements that it holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from search_space.hardware import Hardware
from search_space.ir.expr import Expr, dtype_bytes, lift
from search_space.ir.rounding import TFLOAT32
from search_space.lower.blocks import PIPELINE
from search_space.machines.gpu.blocks import (
    Number,
    Threads,
    add_divisor_limit,
    add_limit,
    copy_to_shared,
    require_gpu,
    with_threads,
)
from search_space.machines.gpu.products import (
    Product,
    find_factor,
    find_product,
    get_factor_dtype,
    longest_extent,
    row_dimension,
    split_parts,
)
from search_space.schedule.builder import Loop
from search_space.schedule.intrinsics import TensorIntrin
from search_space.schedule.state import Stage
from search_space.sketch.base import Draft, SketchRule
from search_space.sketch.reads import list_reads
from search_space.sketch.tables import MAX_WASTE, ceildiv
from search_space.warp_intrinsics import COLUMNS, ROWS, Mma, mma_for

WARPS = (1, 2, 4)
"""Numbers of warps of a block along each side of the output."""
ROW_TILES = (1, 2, 4, 8)
"""Numbers of an instruction's tiles that a warp accumulates along the rows."""
COLUMN_TILES = (1, 2, 4, 8)
"""Numbers of an instruction's tiles that a warp accumulates along the columns."""
BLOCKS = (1, 4, 16)
"""Numbers of vertically adjacent blocks that run one after another, and so find the right factor in the cache."""
STEPS = (1, 2, 4)
"""Numbers of instructions along the reduction in one step, whose tiles are in shared memory together."""
PADS = (0, 1)
"""Vectors of 16 bytes between the rows of a tile in shared memory."""
COLUMN_PADS = (0, 2)
"""Pads of tiles whose columns lanes read by themselves: 4 rows apart and 8 columns apart on different banks."""
MAX_TILES = 32
"""Greatest number of instructions' tiles that a warp accumulates."""
GROUPS, LANES = 8, 4
"""Lanes along the rows of an instruction's output, and along its columns; each has two columns, and rows 8 apart."""


@dataclass(frozen=True)
class Side:
    """Blocks that follow each other, warps or warpgroups of a block, and instructions of each along one side."""

    blocks: Number
    groups: Number
    tiles: Number

    def extent(self, tile: int) -> Expr:
        return lift(self.groups) * self.tiles * tile


class GpuTensorCores(SketchRule):
    """A rule that tiles a product of operands that the tensor cores take, together with its epilogue."""

    name = "gpu_tensor_cores"

    def matches(self, draft: Draft, stage: Stage, hardware: Hardware) -> bool:
        found = find_product(draft, stage)
        return found is not None and self.instruction(draft, found, hardware) is not None

    def instruction(self, draft: Draft, product: Product, hardware: Hardware) -> Mma | None:
        """Returns the instruction; None if the machine has none, or it would mostly multiply zeros."""
        left, right = (get_factor_dtype(product, t) for t in (product.left, product.right))
        mma = mma_for(hardware, left, right, product.sums.dtype)
        axis = product.sums.reduce_axes[-1]
        if mma is None or not product.rows or longest_extent(draft, axis) < mma.depth // 2:
            return None
        if axis.name not in find_factor(product, product.left)[1][-1]:
            return None  # the reduction runs along the left operand in memory
        reads = list_reads(draft, product.output, product.sums.name)
        if any(index.is_const for read in reads for index in read[len(product.batch) :]):
            return None  # a vector's sums that are read at row 0 are a single row, too few for a tile
        constant = draft.state.input(product.right)
        if mma.turned and (constant is None or not constant.constant or constant.layout is not None):
            return None
        return mma

    def apply(self, draft: Draft, stage: Stage, hardware: Hardware) -> list[Draft]:
        product = find_product(draft, stage)
        assert product is not None
        mma = self.instruction(draft, product, hardware)
        assert mma is not None
        out = split_parts(draft, product, hardware, mma.depth)
        draft, sums = draft.sums_in("warp", product.sums.name, stage.name)
        rows, columns = (ROWS, ROW_TILES), (COLUMNS, COLUMN_TILES)
        draft, row, column = decided_sides(draft, product, rows, columns, "warps", WARPS)
        draft, place = self.output(draft, product, row, column)
        draft, outer, inner, depth = self.reduction(draft, product, sums, mma, place)
        tiles = lift(row.tiles) * column.tiles
        held = tiles * 4 + lift(row.tiles) * 4 + lift(column.tiles) * 2
        draft = add_limit(draft, "tiles of a warp", tiles, MAX_TILES)
        warps = Threads(column.groups, require_gpu(hardware).warp, row.groups)
        draft = with_threads(draft, warps.count, held, require_gpu(hardware), require_gpu(hardware).warp)
        draft = self.factors(draft, product, sums, mma, (row, column), warps, (outer, inner), depth)
        out.append(draft.variant("tensor").finish(stage.name, sums))
        for stages in (2, 3):
            piped = draft.pragma(sums, outer, PIPELINE, stages)
            out.append(piped.variant(f"tensor/{stages}").finish(stage.name, sums))
        return out

    # ------------------------------------------------------------------ the output
    def output(self, draft: Draft, product: Product, row: Side, column: Side) -> tuple[Draft, Loop]:
        """Makes the output's loops, with lanes on their elements; returns the loop of warps around a warp's tile."""
        name = product.output.name
        draft, around, rows, columns = product.fused_rows(draft)
        assert rows is not None
        heights = (row.blocks, row.groups, row.tiles, ROWS // GROUPS, GROUPS)
        draft, (i0, i1, i2, i3, i4, i5) = draft.split(name, rows, heights, "guard")
        widths = (column.groups, column.tiles, LANES, COLUMNS // LANES)
        draft, (j0, j1, j2, j3, j4) = draft.split(name, columns, widths, "guard")
        outer, groups, lanes, inner = (*around, i0, j0, i1), (i2, j1), (i5, j3), (i3, j2, i4, j4)
        return on_threads(draft, name, outer, groups, lanes, inner), j1

    # ------------------------------------------------------------------ the sum
    def reduction(
        self, draft: Draft, product: Product, sums: str, mma: Mma, loop: Loop
    ) -> tuple[Draft, Loop, Loop, Expr]:
        """Makes the loops of the sum: over steps, over instructions in a step; returns the depth of a step."""
        name, stage = product.output.name, draft.stage(sums)
        draft = draft.compute_at(sums, name, loop)
        axis = stage.reduce_axes[-1]
        extent = longest_extent(draft, axis)
        table = product.list_steps(axis, extent, STEPS, mma.depth)
        draft, (steps,) = draft.choose_row(f"{name}.{axis.name}", ("steps",), table)
        exact = not axis.extent.is_const or all(extent % (s * mma.depth) == 0 for (s,) in table)
        draft, outer, inner = by_instructions(draft, sums, steps, mma.product, exact)
        return draft, outer, inner, lift(steps) * mma.depth

    def factors(
        self,
        draft: Draft,
        product: Product,
        sums: str,
        mma: Mma,
        sides: tuple[Side, Side],
        warps: Threads,
        loops: tuple[Loop, Loop],
        depth: Expr,
    ) -> Draft:
        """Makes copies of both factors in shared memory, and fragments of the copies."""
        name, (row, column), (outer, inner) = product.output.name, sides, loops
        rows = row_dimension(product)
        for label, tensor in (("left", product.left), ("right", product.right)):
            source = draft.state.input(tensor) or draft.stage(tensor)
            along = find_factor(product, tensor)[1]
            dims = len(along)
            turned = label == "right" and mma.turned
            k = next(d for d in range(dims) if product.sums.reduce_axes[-1].name in along[d])
            across = rows if label == "left" else next(d for d in range(dims) if product.columns.name in along[d])
            rest = tuple(d for d in range(dims) if d not in (k, across))
            order = (*rest, across, k) if label == "left" or turned else (*rest, k, across)
            if turned:  # a constant, laid out in the instruction's order
                draft = draft.pack(tensor, ((),) * dims, [(d, 0) for d in order])
            last = order[-1] if turned else dims - 1
            shape = [int(e) if isinstance(e, int) else int(e.value) for e in source.shape]
            widest = 16 // dtype_bytes(source.dtype)
            vectors = [v for v in (1, 2, 4, 8, 16) if v <= widest and shape[last] % v == 0][-2:]
            draft, vector = draft.choose(f"{name}.{label}.vector", vectors)
            pads = COLUMN_PADS if label == "right" and mma.dtypes[1] == TFLOAT32 else PADS
            draft, pad = draft.choose(f"{name}.{label}.pad", [p * widest for p in pads])
            tile = depth if last == k else column.extent(COLUMNS) if label == "right" else row.extent(ROWS)
            draft = add_divisor_limit(draft, f"vectors of {tensor}", tile, vector)
            in_memory = order if turned else None
            draft, copy = copy_to_shared(draft, tensor, (sums, outer), warps, vector, order, pad, in_memory)
            load, spans = (mma.left, (ROWS, mma.depth)) if label == "left" else (mma.right, None)
            draft = self.fragments(draft, copy, (sums, inner), load.name, load.extents if spans is None else spans)
        return draft

    def fragments(
        self, draft: Draft, tensor: str, anchor: tuple[str, Loop], load: str, extents: tuple[int, ...]
    ) -> Draft:
        """Loads the part of a shared tile that a warp needs for the instructions of one depth."""
        draft, copy = draft.cache_read(tensor, "warp", anchor[0])
        *rest, a, b = draft.stage(copy).leaves
        draft = draft.compute_at(copy, *anchor)
        draft, (a0, a1) = draft.split(copy, a, extents[:1])
        draft, (b0, b1) = draft.split(copy, b, extents[1:])
        draft = draft.reorder(copy, *rest, a0, b0, a1, b1).unroll(copy, *rest, a0, b0)
        return draft.tensorize(copy, a1, load).finish(copy)


def decided_sides(
    draft: Draft,
    product: Product,
    rows: tuple[int, tuple[int, ...]],
    columns: tuple[int, tuple[int, ...]],
    groups: str,
    most: tuple[int, ...],
) -> tuple[Draft, Side, Side]:
    """Decides the tiles on both sides of the output.

    Args:
        rows, columns: extent of an instruction's tile, and choices of the number of tiles.
        groups, most: name of the units that share a block, and choices of their number.
    """
    name, sides = product.output.name, []
    for label, axis, (tile, counts), blocks in (
        ("rows", product.rows[0], rows, BLOCKS),
        ("columns", product.columns, columns, (1,)),
    ):
        table = side_tiles(int(axis.extent.value), tile, counts, blocks, most)
        draft, values = draft.choose_row(f"{name}.{label}", ("blocks", groups, "tiles"), table)
        sides.append(Side(*values))
    return draft, sides[0], sides[1]


def on_threads(
    draft: Draft,
    name: str,
    outer: Sequence[Loop],
    groups: tuple[Loop, Loop],
    lanes: Sequence[Loop],
    inner: Sequence[Loop],
) -> Draft:
    """Binds the output's loops to blocks, to warps or warpgroups, and to their lanes, which hold the inner loops."""
    draft = draft.reorder(name, *outer, *groups, *lanes, *inner)
    draft, block = draft.fuse(name, outer)
    draft, lane = draft.fuse(name, lanes)
    draft = draft.bind(name, block, "blockIdx.x")
    draft = draft.bind(name, groups[0], "threadIdx.z").bind(name, groups[1], "threadIdx.y")
    return draft.bind(name, lane, "threadIdx.x").in_registers(name, inner)


def by_instructions(
    draft: Draft, sums: str, depths: Number, product: TensorIntrin, exact: bool
) -> tuple[Draft, Loop, Loop]:
    """Computes the sums by instructions, along the last reduce axis in steps of `depths` instructions.

    Returns the loop over steps, and the one over the instructions of a step.
    """
    *others, axis = draft.stage(sums).reduction
    *batch, i, j = draft.stage(sums).spatial
    rows, columns, depth = product.extents
    draft, (k0, k1, k2) = draft.split(sums, axis, (depths, depth), "exact" if exact else "guard")
    draft, (i0, i1) = draft.split(sums, i, (rows,))
    draft, (j0, j1) = draft.split(sums, j, (columns,))
    draft = draft.reorder(sums, *others, k0, k1, *batch, i0, j0, i1, j1, k2)
    draft, outer = draft.fuse(sums, (*others, k0))
    return draft.unroll(sums, k1, i0, j0).tensorize(sums, i1, product.name), outer, k1


def side_tiles(
    extent: int, tile: int, counts: tuple[int, ...], blocks: tuple[int, ...], most: tuple[int, ...]
) -> list[tuple[int, int, int]]:
    """Lists (blocks in a row, warps, instructions of a warp) along one side of the output with little waste."""
    tiles = ceildiv(extent, tile)
    table = []
    for group in blocks:
        for warps in most:
            for count in counts:
                part = group * warps * count
                if ceildiv(tiles, part) * part <= max(1, tiles * (MAX_WASTE if group == 1 else 1)):
                    table.append((group, warps, count))
    return table or [(1, 1, 1)]
