"""GPUs: products by the tensor cores, tiled over blocks, warps and the tiles of one instruction.

A warp accumulates a tile of the output in fragments that its lanes hold together (scope `warp`). A step of the
reduction copies tiles of both factors into shared memory; of these a warp loads fragments, each for many instructions.
The epilogue is done by the lanes, each on the elements that it holds.
"""

from __future__ import annotations

from dataclasses import dataclass

from search_space.hardware import Hardware
from search_space.ir.expr import Expr, dtype_bytes, lift
from search_space.ir.rounding import TFLOAT32
from search_space.lower.blocks import PIPELINE
from search_space.machines.gpu.blocks import (
    Number,
    Threads,
    cached,
    copied,
    divided,
    gpu_of,
    limited,
    with_threads,
)
from search_space.machines.gpu.products import (
    Product,
    factor_of,
    longest_extent,
    multiplied,
    product_of,
    row_dimension,
    split_parts,
)
from search_space.schedule.intrinsics import TensorIntrin
from search_space.schedule.state import Stage
from search_space.schedule.steps import (
    Annotate,
    CacheWrite,
    ComputeAt,
    Fuse,
    Pack,
    Pragma,
    Reorder,
    SetScope,
    Split,
    Step,
    Tensorize,
)
from search_space.sketch.base import Draft, SketchRule
from search_space.sketch.reads import reads_of
from search_space.sketch.tables import MAX_WASTE, DecisionGroup, ceildiv
from search_space.warp_intrinsics import COLUMNS, ROWS, Mma, mma_for

WARPS = (1, 2, 4)
ROW_TILES = (1, 2, 4, 8)
COLUMN_TILES = (1, 2, 4, 8)
BLOCKS = (1, 4, 16)
"""Blocks below each other that come one after another, and so find the right factor in the cache."""
STEPS = (1, 2, 4)
PADS = (0, 1)
"""Vectors of 16 bytes between the rows of a tile in shared memory."""
COLUMN_PADS = (0, 2)
"""The same for tiles whose columns lanes read by themselves: 4 rows apart and 8 columns apart on different banks."""
MAX_TILES = 32
"""Instructions' tiles that a warp accumulates."""
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
    """Tiles a product of operands that the tensor cores take, together with its epilogue."""

    name = "gpu_tensor_cores"

    def matches(self, draft: Draft, stage: Stage, hardware: Hardware) -> bool:
        found = product_of(draft, stage)
        return found is not None and self.instruction(draft, found, hardware) is not None

    def instruction(self, draft: Draft, found: Product, hardware: Hardware) -> Mma | None:
        """The instruction; None where there is none, or it would mostly multiply zeros."""
        left, right = (multiplied(found, t) for t in (found.left, found.right))
        mma = mma_for(hardware, left, right, found.sums.dtype)
        axis = found.sums.reduce_axes[-1]
        if mma is None or not found.rows or longest_extent(draft, axis) < mma.depth // 2:
            return None
        if axis.name not in factor_of(found, found.left)[1][-1]:
            return None  # the reduction runs along the left operand in memory
        reads = reads_of(draft, found.output, found.sums.name)
        if any(index.is_const for read in reads for index in read[len(found.batch) :]):
            return None  # a vector's sums that are read at row 0 are a single row, which makes no tile
        constant = draft.state.input(found.right)
        if mma.turned and (constant is None or not constant.constant or constant.layout is not None):
            return None
        return mma

    def apply(self, draft: Draft, stage: Stage, hardware: Hardware) -> list[Draft]:
        found = product_of(draft, stage)
        assert found is not None
        mma = self.instruction(draft, found, hardware)
        assert mma is not None
        out = split_parts(draft, found, hardware, mma.depth)
        draft, sums = held_in(draft, found, stage, "warp")
        rows, columns = (ROWS, ROW_TILES), (COLUMNS, COLUMN_TILES)
        draft, row, column = decided_sides(draft, found, rows, columns, "warps", WARPS)
        draft, place = self.output(draft, found, row, column)
        draft, outer, inner, depth = self.reduction(draft, found, sums, mma, place)
        tiles = lift(row.tiles) * column.tiles
        held = tiles * 4 + lift(row.tiles) * 4 + lift(column.tiles) * 2
        draft = limited(draft, "tiles of a warp", tiles, MAX_TILES)
        warps = Threads(column.groups, gpu_of(hardware).warp, row.groups)
        draft = with_threads(draft, warps.count, held, gpu_of(hardware), gpu_of(hardware).warp)
        draft = self.factors(draft, found, sums, mma, (row, column), warps, (outer, inner), depth)
        out.append(draft.variant("tensor").finish(stage.name, sums))
        for stages in (2, 3):
            piped = draft.apply(Pragma(sums, outer, PIPELINE, stages))
            out.append(piped.variant(f"tensor/{stages}").finish(stage.name, sums))
        return out

    # ------------------------------------------------------------------ the output
    def output(self, draft: Draft, found: Product, row: Side, column: Side) -> tuple[Draft, str]:
        """The output's loops, the lanes on the elements that they hold; and the loop of warps around a warp's tile."""
        name = found.output.name
        steps, around, i, j = found.fused_rows()
        steps += [
            Split(name, i, (row.blocks, row.groups, row.tiles, ROWS // GROUPS, GROUPS), "guard"),
            Split(name, j, (column.groups, column.tiles, LANES, COLUMNS // LANES), "guard"),
        ]
        outer, lanes = (*around, f"{i}.0", f"{j}.0", f"{i}.1"), (f"{i}.5", f"{j}.3")
        inner = (f"{i}.3", f"{j}.2", f"{i}.4")
        steps += on_threads(name, outer, (f"{i}.2", f"{j}.1"), lanes, inner, f"{j}.4")
        return draft.apply(*steps), f"{j}.1"

    # ------------------------------------------------------------------ the sum
    def reduction(self, draft: Draft, found: Product, sums: str, mma: Mma, place: str) -> tuple[Draft, str, str, Expr]:
        """The loops of the sum: over steps, over the instructions' depths in a step; and how deep a step is."""
        name, stage = found.output.name, draft.state.stage(sums)
        draft = draft.apply(ComputeAt(sums, name, place))
        *others, axis = stage.reduce_axes
        extent = longest_extent(draft, axis)
        table = found.steps_of(axis, extent, STEPS, mma.depth)
        group = DecisionGroup.of(f"{name}.{axis.name}", (f"{name}.{axis.name}.steps",), table)
        draft, (steps,) = draft.decide(group)
        exact = not axis.extent.is_const or all(extent % (s * mma.depth) == 0 for (s,) in table)
        outer = (*(a.name for a in others), f"{axis.name}.0")
        draft = draft.apply(*by_instructions(stage, axis.name, outer, steps, mma.product, exact))
        return draft, "_".join(outer), f"{axis.name}.1", lift(steps) * mma.depth

    def factors(
        self,
        draft: Draft,
        found: Product,
        sums: str,
        mma: Mma,
        sides: tuple[Side, Side],
        warps: Threads,
        loops: tuple[str, str],
        depth: Expr,
    ) -> Draft:
        """Copies of both factors in shared memory, and fragments of these."""
        name, (row, column), (outer, inner) = found.output.name, sides, loops
        rows = row_dimension(found)
        for label, tensor in (("left", found.left), ("right", found.right)):
            source = draft.state.input(tensor) or draft.state.stage(tensor)
            along = factor_of(found, tensor)[1]
            dims = len(along)
            turned = label == "right" and mma.turned
            k = next(d for d in range(dims) if found.sums.reduce_axes[-1].name in along[d])
            across = rows if label == "left" else next(d for d in range(dims) if found.columns.name in along[d])
            rest = tuple(d for d in range(dims) if d not in (k, across))
            order = (*rest, across, k) if label == "left" or turned else (*rest, k, across)
            if turned:  # a constant, laid out as the instruction wants it
                draft = draft.apply(Pack(tensor, ((),) * dims, tuple((d, 0) for d in order)))
            last = order[-1] if turned else dims - 1
            shape = [int(e) if isinstance(e, int) else int(e.value) for e in source.shape]
            widest = 16 // dtype_bytes(source.dtype)
            vectors = [(v,) for v in (1, 2, 4, 8, 16) if v <= widest and shape[last] % v == 0][-2:]
            group = f"{name}.{label}.vector"
            draft, (vector,) = draft.decide(DecisionGroup.of(group, (group,), vectors))
            pads = COLUMN_PADS if label == "right" and mma.dtypes[1] == TFLOAT32 else PADS
            group = f"{name}.{label}.pad"
            draft, (pad,) = draft.decide(DecisionGroup.of(group, (group,), [(p * widest,) for p in pads]))
            tile = depth if last == k else column.extent(COLUMNS) if label == "right" else row.extent(ROWS)
            draft = divided(draft, f"vectors of {tensor}", tile, vector)
            in_memory = order if turned else None
            draft, copy = copied(draft, tensor, (sums, outer), warps, vector, order, pad, in_memory)
            load, spans = (mma.left, (ROWS, mma.depth)) if label == "left" else (mma.right, None)
            draft = self.fragments(draft, copy, (sums, inner), load.name, load.extents if spans is None else spans)
        return draft

    def fragments(
        self, draft: Draft, tensor: str, place: tuple[str, str], load: str, extents: tuple[int, ...]
    ) -> Draft:
        """What a warp loads of a shared tile for the instructions of one depth."""
        draft, copy = cached(draft, tensor, "warp", place[0])
        *rest, a, b = draft.state.stage(copy).leaves
        steps: list[Step] = [ComputeAt(copy, *place)]
        steps += [Split(copy, leaf, (extent,), "exact") for leaf, extent in zip((a, b), extents, strict=True)]
        steps += [
            Reorder(copy, (*rest, f"{a}.0", f"{b}.0", f"{a}.1", f"{b}.1")),
            *(Annotate(copy, leaf, "unroll") for leaf in (*rest, f"{a}.0", f"{b}.0")),
            Tensorize(copy, f"{a}.1", load),
        ]
        return draft.apply(*steps).finish(copy)


def held_in(draft: Draft, found: Product, stage: Stage, scope: str) -> tuple[Draft, str]:
    """The draft with the sums in the registers of several threads, and the name of the stage that they are."""
    if found.sums is not stage:
        return draft.apply(SetScope(found.sums.name, scope)), found.sums.name
    draft = draft.apply(CacheWrite(stage.name, scope))
    return draft, draft.state.stages[draft.state.stages.index(draft.state.stage(stage.name)) - 1].name


def decided_sides(
    draft: Draft,
    found: Product,
    rows: tuple[int, tuple[int, ...]],
    columns: tuple[int, tuple[int, ...]],
    groups: str,
    most: tuple[int, ...],
) -> tuple[Draft, Side, Side]:
    """The draft with decisions on both sides of the output.

    Args:
        rows, columns: of an instruction, and how many of them.
        groups, most: what shares a block, and how many.
    """
    name, sides = found.output.name, []
    for label, axis, (tile, counts), blocks in (
        ("rows", found.rows[0], rows, BLOCKS),
        ("columns", found.columns, columns, (1,)),
    ):
        group = tuple(f"{name}.{label}.{x}" for x in ("blocks", groups, "tiles"))
        table = side_tiles(int(axis.extent.value), tile, counts, blocks, most)
        draft, values = draft.decide(DecisionGroup.of(f"{name}.{label}", group, table))
        sides.append(Side(*values))
    return draft, sides[0], sides[1]


def on_threads(
    name: str,
    outer: tuple[str, ...],
    groups: tuple[str, str],
    lanes: tuple[str, ...],
    inner: tuple[str, ...],
    vector: str,
) -> list[Step]:
    """Steps that bind the output's loops: blocks, warps or warpgroups, their lanes, and what each of these holds."""
    return [
        Reorder(name, (*outer, *groups, *lanes, *inner, vector)),
        Fuse(name, outer),
        Fuse(name, lanes),
        Annotate(name, "_".join(outer), "blockIdx.x"),
        Annotate(name, groups[0], "threadIdx.z"),
        Annotate(name, groups[1], "threadIdx.y"),
        Annotate(name, "_".join(lanes), "threadIdx.x"),
        *(Annotate(name, leaf, "unroll") for leaf in inner),
        Annotate(name, vector, "vectorize"),
    ]


def by_instructions(
    sums: Stage, axis: str, outer: tuple[str, ...], depths: Number, product: TensorIntrin, exact: bool
) -> list[Step]:
    """Steps that make the sums by instructions.

    Args:
        axis: what is cut into steps of so many depths of the instruction; outer: the loops over steps.
    """
    *batch, i, j = (a.name for a in sums.axes)
    rows, columns, depth = product.extents
    inner = f"{axis}.1"
    return [
        Split(sums.name, axis, (depths, depth), "exact" if exact else "guard"),
        Split(sums.name, i, (rows,), "exact"),
        Split(sums.name, j, (columns,), "exact"),
        Reorder(sums.name, (*outer, inner, *batch, f"{i}.0", f"{j}.0", f"{i}.1", f"{j}.1", f"{axis}.2")),
        *([Fuse(sums.name, outer)] if len(outer) > 1 else []),
        *(Annotate(sums.name, leaf, "unroll") for leaf in (inner, f"{i}.0", f"{j}.0")),
        Tensorize(sums.name, f"{i}.1", product.name),
    ]


def side_tiles(
    extent: int, tile: int, counts: tuple[int, ...], blocks: tuple[int, ...], most: tuple[int, ...]
) -> list[tuple[int, int, int]]:
    """(blocks in a row, warps, instructions of a warp) along one side of the output, little of it outside."""
    whole = ceildiv(extent, tile)
    found = []
    for group in blocks:
        for warps in most:
            for count in counts:
                part = group * warps * count
                if ceildiv(whole, part) * part <= max(1, whole * (MAX_WASTE if group == 1 else 1)):
                    found.append((group, warps, count))
    return found or [(1, 1, 1)]
