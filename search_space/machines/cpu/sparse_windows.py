"""Convolutions with the blocks of a constant that are not zero: sums over rows of pixels (tag `sparse`), cut to images.

The definition puts the pixels of an image in one row, padding included (`search_space/operators/sparse_conv.py`). These
rows are written first. Blocks of image rows then run in parallel. The sums of a block are those of a product, in the
same tiles of registers; its output takes the pixels of the images from them.
"""

from __future__ import annotations

from collections.abc import Iterator

from search_space.hardware import COLUMNS, Hardware
from search_space.ir.expr import Expr, const, lift, substitute, walk
from search_space.ir.polynomial import canon
from search_space.machines.cpu.sparse import (
    FEWEST_LANES,
    MOST_COLUMN_VECTORS,
    MOST_VECTORS,
    accumulate_along_columns,
    accumulate_along_rows,
    block_shape,
    column_lanes,
    copy_by_columns,
    data_name,
    lanes_along,
    widths,
)
from search_space.machines.cpu.spread import spread
from search_space.machines.cpu.tiling import MAX_REDUCE_UNROLL, MAX_TILE, MAX_UNROLL
from search_space.schedule.state import Stage
from search_space.sketch.base import Draft, SketchRule
from search_space.sketch.reads import ends_in, list_reads, variable
from search_space.sketch.tables import clamped_tiles, divisors
from search_space.tags import Tag


class SparseWindows(SketchRule):
    """Tiles of pixels by the columns of a row of blocks, with vectors along either, for blocks of image rows.

    A block's sums are those of all its pixels, and of those at the right border between them, which are not used.
    """

    name = "sparse_windows"

    def matches(self, draft: Draft, stage: Stage, hardware: Hardware) -> bool:
        return self.sums(draft, stage) is not None

    def sums(self, draft: Draft, stage: Stage) -> Stage | None:
        """Finds the sparse sums whose pixels an output takes."""
        if stage.name not in draft.state.outputs or stage.reducer is not None or len(stage.axes) != 4:
            return None
        sparse = [r for r in draft.producers(stage) if r.tag == Tag.SPARSE]
        if len(sparse) != 1 or len(sparse[0].axes) != 3 or not ends_in(draft, sparse[0], stage):
            return None
        reads = list_reads(draft, stage, sparse[0].name)
        image, _, _, column = map(variable, stage.axes)
        places = all(n is image and k is column and follows_rows(i, stage, sparse[0]) for n, i, k in reads)
        return sparse[0] if places else None

    def apply(self, draft: Draft, stage: Stage, hardware: Hardware) -> list[Draft]:
        sums = self.sums(draft, stage)
        assert sums is not None
        draft = write_rows(draft, sums, hardware)
        out = []
        if lanes_along(int(sums.axes[1].extent.value), hardware) >= FEWEST_LANES:
            out += [self.along_rows(draft, stage, sums, width, hardware) for width in widths(draft, sums, hardware)]
        if column_lanes(draft, sums, hardware) >= FEWEST_LANES:
            out.append(self.along_columns(draft, stage, sums, hardware))
        return out

    def along_rows(self, draft: Draft, stage: Stage, sums: Stage, width: int, hardware: Hardware) -> Draft:
        """Makes vectors along the pixels: sums of some rows of blocks, transposed as they are written."""
        lanes, (columns, depth) = lanes_along(int(sums.axes[1].extent.value), hardware), block_shape(draft, sums)
        draft = copy_by_columns(draft, sums, lanes, hardware)
        draft, registers = draft.cache_write(sums.name, "local")
        order = (0, 2, 1)
        draft = draft.relayout(sums.name, order).relayout(registers, order)
        most = min((hardware.vector_registers - 1) // (width + 1), MOST_VECTORS)
        draft, vectors = draft.choose(f"{sums.name}.vectors", range(1, most + 1))
        unroll = max(d for d in divisors(depth) if d <= MAX_REDUCE_UNROLL)
        draft = draft.require("unrolled operations", lift(vectors) * (width * unroll), MAX_UNROLL)
        draft = self.cut_images(draft, stage, sums, hardware)
        image, row, column = sums.spatial
        draft, (r0, within) = draft.split(sums.name, row, (lift(vectors) * lanes,), "clamp")
        draft, (r1, r2) = draft.split(sums.name, within, (lanes,))
        draft, (c0, c1, c2) = draft.split(sums.name, column, (columns // width, width))
        draft = draft.reorder(sums.name, image, r0, c0, c1, c2, r1, r2).in_registers(sums.name, (c2, r1, r2))
        draft = draft.compute_at(registers, sums.name, c1)
        draft = accumulate_along_rows(draft, registers, (row, column), lanes, unroll)
        return draft.variant(f"rows{width}").finish(stage.name, sums.name, registers)

    def along_columns(self, draft: Draft, stage: Stage, sums: Stage, hardware: Hardware) -> Draft:
        """Makes vectors along the columns of a block, by a tile of pixels."""
        lanes, (columns, depth) = column_lanes(draft, sums, hardware), block_shape(draft, sums)
        draft, registers = draft.cache_write(sums.name, "local")
        vectors = max(d for d in divisors(columns // lanes) if d <= MOST_COLUMN_VECTORS)
        pixels = int(sums.axes[1].extent.value)
        draft, (tile,) = draft.choose_row(f"{sums.name}.tile", ("tile",), clamped_tiles(pixels, MAX_TILE, 1))
        draft = draft.require("registers", lift(tile) * vectors + vectors + 1, hardware.vector_registers)
        unroll = max(d for d in divisors(depth) if d <= MAX_REDUCE_UNROLL)
        draft = draft.require("unrolled operations", lift(tile) * (vectors * unroll), MAX_UNROLL)
        draft = self.cut_images(draft, stage, sums, hardware)
        image, row, column = sums.spatial
        draft, (r0, r1) = draft.split(sums.name, row, (tile,), "clamp")
        draft, (c0, c1, c2) = draft.split(sums.name, column, (vectors, lanes))
        draft = draft.reorder(sums.name, image, r0, c0, r1, c1, c2).in_registers(sums.name, (r1, c1, c2))
        draft = draft.compute_at(registers, sums.name, c0)
        draft = accumulate_along_columns(draft, registers, (row, column), lanes, unroll)
        return draft.variant("columns").finish(stage.name, sums.name, registers)

    def cut_images(self, draft: Draft, stage: Stage, sums: Stage, hardware: Hardware) -> Draft:
        """Splits the output into blocks of image rows by rows of blocks, and computes the sums of each block there."""
        name, (columns, _) = stage.name, block_shape(draft, sums)
        image, row, pixel, column = stage.spatial
        count, written = int(stage.axes[-1].extent.value) // columns, hardware.float_lanes
        height, width = (int(axis.extent.value) for axis in stage.axes[1:3])
        draft, (rows,) = draft.choose_row(f"{name}.{row}", ("rows",), clamped_tiles(height, height, 1))
        full = [group for group in divisors(count) if group * columns % written == 0]
        draft, group = draft.choose(f"{name}.{column}", full or divisors(count))
        draft, (y0, y1) = draft.split(name, row, (rows,), "clamp")
        draft, (j0, within) = draft.split(name, column, (lift(group) * columns,))
        draft, (j1, j2) = draft.split(name, within, (written,), "exact" if full else "guard")
        draft, (x0, x1) = draft.split(name, pixel, (min(COLUMNS, width),), "clamp")
        draft = draft.reorder(name, image, y0, j0, y1, j1, x0, x1, j2)
        draft, block = draft.fuse(name, image, y0, j0)
        return draft.parallel(name, block).in_registers(name, (x1, j2)).compute_at(sums.name, name, block)


def follows_rows(index: Expr, stage: Stage, sums: Stage) -> bool:
    """Tells whether an output takes its pixels from the sums in their order, at equal distances from row to row."""
    height, width = (int(axis.extent.value) for axis in stage.axes[1:3])
    row, pixel = map(variable, stage.axes[1:3])
    if height == 1:  # the sums do not say a distance, and the only row is at none
        return canon(substitute(index, {row.args[0]: const(0)}) - pixel).is_const
    across = (int(sums.axes[1].extent.value) - width) // (height - 1)
    return canon(index - (row * across + pixel)).is_const


def write_rows(draft: Draft, sums: Stage, hardware: Hardware) -> Draft:
    """Writes the rows of pixels before the sums, image row by image row, in vectors along the channels."""
    name, lanes = data_name(sums), hardware.float_lanes
    if draft.state.input(name) is not None:
        return draft
    image, pixels, channels = draft.stage(name).spatial
    depth = channels_of_phase(draft.stage(name))
    draft, (y, x) = draft.split(name, pixels, (pixels_of_row(draft.stage(name)),))
    draft, (phase, channel) = draft.split(name, channels, (depth,))
    draft, (c0, c1) = draft.split(name, channel, (lanes,), "exact" if depth % lanes == 0 else "guard")
    draft = draft.reorder(name, image, y, x, phase, c0, c1)
    draft, block = draft.fuse(name, image, y)
    return spread(draft.parallel(name, block).vectorize(name, c1), name, hardware).finish(name)


def pixels_of_row(rows: Stage) -> int:
    """Returns the distance along a row of pixels from an image row to the next, border included."""
    return next(list_divisors(rows, 1), 1)  # quotients by 1 are not written


def channels_of_phase(rows: Stage) -> int:
    """Returns the channels of each phase of a stride; all of them if there is one phase."""
    return next(list_divisors(rows, 2), int(rows.axes[2].extent.value))


def list_divisors(rows: Stage, dimension: int) -> Iterator[int]:
    """Lists the numbers by which the definition of the rows divides an index."""
    index = variable(rows.axes[dimension])
    return (int(n.args[1].value) for n in walk(rows.body) if n.op == "floordiv" and n.args[0] is index)
