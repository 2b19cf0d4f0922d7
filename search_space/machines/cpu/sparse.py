"""Products with the blocks of a constant that are not zero (tag `sparse`): a row of blocks into a tile of registers.

The positions of the blocks differ from row to row of blocks, so that a tile lies within one. Each block adds products
to the whole tile, whose size alone decides how often its values and the data are read.
"""

from __future__ import annotations

import math

from search_space.hardware import COLUMNS, Hardware
from search_space.ir.expr import Expr, lift, walk
from search_space.machines.cpu.spread import spread
from search_space.machines.cpu.tiling import MAX_REDUCE_UNROLL, MAX_TILE, MAX_UNROLL
from search_space.schedule.builder import Loop
from search_space.schedule.state import Stage
from search_space.sketch.base import Draft, SketchRule
from search_space.sketch.reads import ends_in, same_places
from search_space.sketch.tables import MAX_WASTE, ceildiv, clamped_tiles, divisors
from search_space.tags import Tag

MOST_COLUMNS = 16
"""Greatest number of columns of a tile whose vectors run along the rows of the data."""
MOST_VECTORS = 16
"""Greatest number of vectors of rows in a tile."""
MOST_COLUMN_VECTORS = 2
"""Greatest number of vectors of columns in a tile; rows fill the other registers."""
FEWEST_LANES = 4
"""Fewest lanes of a vector, along the rows of the data or the columns of a block, that are worth a sketch."""


class SparseProducts(SketchRule):
    """Tiles of rows of data by the columns of a row of blocks, with vectors along either.

    Vectors along the rows fit blocks of any size. The data are copied with columns as rows, so that a vector is one
    load, and each value of a block is broadcast. Sums are transposed as they are written. Vectors along the columns
    need blocks of as many columns, or shorter vectors; each number of the data is broadcast.
    """

    name = "sparse_products"

    def matches(self, draft: Draft, stage: Stage, hardware: Hardware) -> bool:
        return self.sums(draft, stage) is not None

    def sums(self, draft: Draft, stage: Stage) -> Stage | None:
        """Finds the sparse sums of an output: itself, or those that its epilogue reads at its own indices."""
        if stage.name not in draft.state.outputs:
            return None
        if stage.tag == Tag.SPARSE:
            return stage
        found = [r for r in draft.producers(stage) if r.tag == Tag.SPARSE]
        plain = len(found) == 1 and same_places(draft, found[0], stage) and ends_in(draft, found[0], stage)
        return found[0] if plain and stage.reducer is None else None

    def apply(self, draft: Draft, stage: Stage, hardware: Hardware) -> list[Draft]:
        sums = self.sums(draft, stage)
        assert sums is not None
        out = []
        if lanes_along(int(stage.axes[0].extent.value), hardware) >= FEWEST_LANES:
            out += [self.along_rows(draft, stage, sums, width, hardware) for width in widths(draft, sums, hardware)]
        if column_lanes(draft, sums, hardware) >= FEWEST_LANES:
            out.append(self.along_columns(draft, stage, sums, hardware))
        return out

    def along_rows(self, draft: Draft, stage: Stage, sums: Stage, width: int, hardware: Hardware) -> Draft:
        """Makes vectors along the rows of the data: sums of some rows of blocks, transposed as they are written."""
        name, lanes = stage.name, lanes_along(int(stage.axes[0].extent.value), hardware)
        columns, depth = block_shape(draft, sums)
        draft = copy_by_columns(draft, sums, lanes, hardware)
        draft, tile = draft.cache_write(name, "global") if sums.name == name else (draft, sums.name)
        draft, registers = draft.cache_write(tile, "local")
        (i, j), (row, column) = stage.spatial, sums.spatial
        draft = draft.relayout(tile, (1, 0)).relayout(registers, (1, 0))
        rows, count = int(stage.axes[0].extent.value), int(stage.axes[1].extent.value) // columns
        draft, (vectors,) = draft.choose_row(f"{name}.{i}", ("vectors",), row_vectors(rows, lanes))
        draft = draft.require("registers", lift(vectors) * (width + 1) + 1, hardware.vector_registers)
        unroll = max(d for d in divisors(depth) if d <= MAX_REDUCE_UNROLL)
        draft = draft.require("unrolled operations", lift(vectors) * (width * unroll), MAX_UNROLL)
        written = hardware.float_lanes  # the output has its vectors along the columns
        full = [group for group in divisors(count) if group * columns % written == 0]
        draft, group = draft.choose(f"{name}.{j}", full or divisors(count))

        draft, (i0, within) = draft.split(name, i, (lift(vectors) * lanes,), "clamp")
        draft, (i1, i2) = draft.split(name, within, (COLUMNS,))
        draft, (j0, within) = draft.split(name, j, (lift(group) * columns,))
        draft, (j1, j2) = draft.split(name, within, (written,), "exact" if full else "guard")
        # Neighbours of a few rows innermost: vectors that run across them are shuffled together.
        draft = draft.reorder(name, i0, j0, j1, i1, i2, j2)
        draft, block = draft.fuse(name, i0, j0)
        draft = draft.parallel(name, block).in_registers(name, (i2, j2)).compute_at(tile, name, block)

        draft, (c0, c1, c2) = draft.split(tile, column, (columns // width, width))
        draft, (r0, r1) = draft.split(tile, row, (lanes,))
        draft = draft.reorder(tile, c0, c1, c2, r0, r1).in_registers(tile, (c2, r0, r1)).compute_at(registers, tile, c1)
        draft = accumulate_along_rows(draft, registers, (row, column), lanes, unroll)
        return draft.variant(f"rows{width}").finish(name, tile, registers)

    def along_columns(self, draft: Draft, stage: Stage, sums: Stage, hardware: Hardware) -> Draft:
        """Makes vectors along the columns of a block, by a tile of rows."""
        name, lanes, (columns, depth) = stage.name, column_lanes(draft, sums, hardware), block_shape(draft, sums)
        draft, registers = draft.sums_in("local", sums.name, name)
        (i, j), (row, column) = stage.spatial, sums.spatial
        rows, count = int(stage.axes[0].extent.value), int(stage.axes[1].extent.value) // columns
        vectors = max(d for d in divisors(columns // lanes) if d <= MOST_COLUMN_VECTORS)
        draft, (tile,) = draft.choose_row(f"{name}.{i}", ("tile",), clamped_tiles(rows, MAX_TILE, 1))
        draft = draft.require("registers", lift(tile) * vectors + vectors + 1, hardware.vector_registers)
        unroll = max(d for d in divisors(depth) if d <= MAX_REDUCE_UNROLL)
        draft = draft.require("unrolled operations", lift(tile) * (vectors * unroll), MAX_UNROLL)
        draft, group = draft.choose(f"{name}.{j}", divisors(count))
        draft, (i0, i1) = draft.split(name, i, (tile,), "clamp")
        draft, (j0, within) = draft.split(name, j, (lift(group) * columns,))
        draft, (j1, j2, j3) = draft.split(name, within, (vectors, lanes))
        draft = draft.reorder(name, i0, j0, j1, i1, j2, j3)
        draft, block = draft.fuse(name, i0, j0)
        draft = draft.parallel(name, block).in_registers(name, (i1, j2, j3)).compute_at(registers, name, j1)
        draft = accumulate_along_columns(draft, registers, (row, column), lanes, unroll)
        return draft.variant("columns").finish(name, registers)


def accumulate_along_rows(draft: Draft, registers: str, axes: tuple[Loop, Loop], lanes: int, unroll: int) -> Draft:
    """Makes the loops of sums in registers, whose vectors run along the rows."""
    row, column = axes
    terms, steps = draft.stage(registers).reduction
    draft, (p0, p1) = draft.split(registers, steps, (unroll,))
    draft, (r0, r1) = draft.split(registers, row, (lanes,))
    draft = draft.reorder(registers, terms, p0, p1, column, r0, r1)
    return draft.in_registers(registers, (p1, column, r0, r1))


def accumulate_along_columns(draft: Draft, registers: str, axes: tuple[Loop, Loop], lanes: int, unroll: int) -> Draft:
    """Makes the loops of sums in registers, whose vectors run along the columns."""
    row, column = axes
    terms, steps = draft.stage(registers).reduction
    draft, (p0, p1) = draft.split(registers, steps, (unroll,))
    draft, (c0, c1) = draft.split(registers, column, (lanes,))
    draft = draft.reorder(registers, terms, p0, p1, row, c0, c1)
    return draft.in_registers(registers, (p1, row, c0, c1))


def lanes_along(rows: int, hardware: Hardware) -> int:
    """Returns the lanes of a vector along rows of the data, at most as many as there are rows."""
    return min(hardware.float_lanes, 1 << (rows.bit_length() - 1))


def column_lanes(draft: Draft, sums: Stage, hardware: Hardware) -> int:
    """Returns the lanes of a vector along the columns of a block, which they divide."""
    return math.gcd(block_shape(draft, sums)[0], hardware.float_lanes)


def widths(draft: Draft, sums: Stage, hardware: Hardware) -> list[int]:
    """Lists the columns of tiles whose vectors run along the rows: a block's, or half of many for more vectors.

    A tile of one vector, a vector of data and a value fit the registers.
    """
    columns, _ = block_shape(draft, sums)
    most = max(d for d in divisors(columns) if d <= MOST_COLUMNS)
    choices = [most, most // 2] if most == MOST_COLUMNS else [most]
    return [width for width in choices if width + 2 <= hardware.vector_registers]


def block_shape(draft: Draft, sums: Stage) -> tuple[int, int]:
    """Returns columns and depth of a block: the last dimensions of its values, the constant that is multiplied."""
    name = next(
        n.args[0] for n in walk(sums.body) if n.op == "load" and len(n.args) == 5 and draft.state.input(n.args[0])
    )
    source = draft.state.input(name)
    assert source is not None
    depth, columns = source.shape[-2:]
    return columns, depth


def row_vectors(rows: int, lanes: int) -> list[tuple[int]]:
    """Lists vectors of a tile along the rows of the data, of which the last tile may begin earlier."""
    counts = range(1, min(rows // lanes, MOST_VECTORS) + 1)
    return [(v,) for v in counts if v == 1 or ceildiv(rows, v * lanes) * v * lanes <= rows * MAX_WASTE]


def copy_by_columns(draft: Draft, sums: Stage, lanes: int, hardware: Hardware) -> Draft:
    """Copies the data before the sums with columns as rows; a few of them at once, in vectors along the others."""
    draft, copy = draft.cache_read(data_name(sums), "global", sums.name)
    *images, row, column = draft.stage(copy).spatial
    tail = "clamp" if int(draft.stage(copy).axes[-1].extent.value) >= COLUMNS else "guard"
    draft = draft.relayout(copy, (*range(len(images)), len(images) + 1, len(images)))
    draft, (k0, k1) = draft.split(copy, column, (COLUMNS,), tail)
    draft, (r0, r1) = draft.split(copy, row, (lanes,), "clamp")
    draft = draft.reorder(copy, *images, k0, r0, k1, r1).in_registers(copy, (k1, r1))
    draft, block = draft.fuse(copy, *images, k0)
    return spread(draft.parallel(copy, block), copy, hardware).finish(copy)


def data_name(sums: Stage) -> str:
    """Returns the name of the data that sparse sums read, at positions that are data, too."""
    name: str = next(n.args[0] for n in walk(sums.body) if n.op == "load" and _indirect(n))
    return name


def _indirect(node: Expr) -> bool:
    return any(inner.op == "load" for index in node.args[1:] for inner in walk(index))
