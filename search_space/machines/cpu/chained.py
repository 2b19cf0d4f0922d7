"""Products with the rows of a product, as in attention: intermediate rows stay in cache, a block of rows at a time.

Where the machine has an instruction for the products, the right factors are copied in its order for each block.
"""

from __future__ import annotations

from dataclasses import dataclass

from search_space.dtypes import FLOATS
from search_space.hardware import Hardware
from search_space.ir.expr import Expr, lift, product, walk
from search_space.machines.cpu.rowwise import AT_ONCE, in_parts, reduction, vectors
from search_space.machines.cpu.spread import spread
from search_space.machines.cpu.tiling import (
    MAX_REDUCE_UNROLL,
    MAX_TILE,
    MAX_UNROLL,
    in_vectors,
    interleave_operand,
    vector_axis,
)
from search_space.machines.shared.groups import MAX_VECTORS
from search_space.machines.shared.instructions import interleavable, matching_intrinsic, pays_to_widen, widen_shared
from search_space.machines.shared.rows import along_last
from search_space.schedule.builder import Loop
from search_space.schedule.intrinsics import TensorIntrin
from search_space.schedule.state import Stage
from search_space.sketch.base import Draft, SketchRule
from search_space.sketch.reads import ends_in, in_row, same_places
from search_space.sketch.tables import MAX_WASTE, ceildiv, clamped_tiles, reduce_tiles, vector_tiles
from search_space.tags import Tag

Number = Expr | int

MAX_TILES = 16
"""Greatest number of register tiles in a block of rows."""


@dataclass(frozen=True)
class _Chain:
    """The stages of a chain of two products, each with the leading axes of the output.

    Attributes:
        output: last stage, computed element by element from `second`.
        second: a sum of products along the rows of `rows[-1]`, or of `first`.
        rows: stages computed from the rows of `first`, producers first.
        first: a sum of products of inputs.
    """

    output: Stage
    second: Stage
    rows: tuple[Stage, ...]
    first: Stage

    @property
    def leading(self) -> int:
        """Number of axes that select a row."""
        return len(self.output.axes) - 1


@dataclass(frozen=True)
class _Tile:
    """A tile of registers of the output.

    Attributes:
        rows, vectors: its size.
        block: the parallel loop over blocks of rows; place: the loop around a tile.
    """

    rows: Number
    vectors: Number
    block: Loop
    loop: Loop


class ChainedProducts(SketchRule):
    """Blocks of rows in parallel: the first product, the stages of its rows, and the second, one after the other."""

    name = "chained_products"

    def matches(self, draft: Draft, stage: Stage, hardware: Hardware) -> bool:
        return stage.name in draft.state.outputs and stage.reducer is None and self.chain(draft, stage) is not None

    def chain(self, draft: Draft, output: Stage) -> _Chain | None:
        """Finds the stages that lead to `output`, if they form a chain of two products."""
        live = [s for s in draft.state.stages if s.attach.kind != "inline"]
        if any(s.dtype not in FLOATS for s in live):
            return None
        sums = (s for s in live if s.reducer == "sum" and s.tag != Tag.LIBRARY)
        products = [s for s in sums if vector_axis(s) and not along_last(s)]
        # The chain must contain all stages: any other stage would have to fit between its loops.
        if len(products) != 2 or live[0] is not products[0] or len(output.axes) < 2:
            return None
        first, second = products
        chain = _Chain(output, second, tuple(s for s in live if s not in (first, second, output)), first)
        whole = same_places(draft, second, output) and ends_in(draft, second, output)
        if not whole or len(second.reduce_axes) != 1 or len(first.reduce_axes) != 1:
            return None
        if any(s.reducer is not None and not along_last(s) for s in chain.rows):
            return None
        if any(source.constant for source in draft.state.inputs if source.name in (*first.reads(), *second.reads())):
            return None  # without a chain, the constants of a product can be packed
        return chain if self.by_rows(draft, chain, live) else None

    def by_rows(self, draft: Draft, chain: _Chain, live: list[Stage]) -> bool:
        """Tells whether all stages have the output's rows, and read each other within their own row."""
        count = chain.leading
        extents = [a.extent for a in chain.output.axes[:count]]
        if any([a.extent for a in s.axes[:count]] != extents or len(s.axes) > count + 1 for s in live):
            return False
        # A read from another row would be of another block, which another thread may not have computed yet.
        return all(in_row(draft, stage, other.name, count) for stage in live for other in live)

    def apply(self, draft: Draft, stage: Stage, hardware: Hardware) -> list[Draft]:
        chain = self.chain(draft, stage)
        assert chain is not None
        products = [chain.first, chain.second]
        matches = [matching_intrinsic(draft, product, hardware) for product in products]
        ways = [draft.variant("chain")]
        if any(match is None or pays_to_widen(match[0], hardware) for match in matches):
            widened: Draft | None = ways[0]
            for product in products:
                widened = widened and widen_shared(widened, product, hardware)
            ways += [] if widened is None else [widened.variant("widened")]
        return [self.schedule(way, chain, hardware) for way in ways]

    def schedule(self, draft: Draft, chain: _Chain, hardware: Hardware) -> Draft:
        """Schedules all stages of the chain, and the copy of a factor that is widened."""
        copies = draft.copies & {s.name for s in draft.producers(draft.stage(chain.first.name))}
        # The output first: all others are computed at its loops.
        draft, tile = self.output(draft, chain, hardware)
        draft = self.second(draft, chain, tile, hardware)
        draft = self.between(draft, chain, tile, hardware)
        draft = self.first(draft, chain, tile, hardware)
        for copy in copies:
            draft, (_, lane) = draft.split(copy, draft.stage(copy).spatial[-1], (hardware.float_lanes,), "guard")
            draft = draft.vectorize(copy, lane).compute_at(copy, chain.output.name, tile.block)
        return draft.finish(*(s.name for s in draft.state.stages))

    # ------------------------------------------------------------------ loops
    def output(self, draft: Draft, chain: _Chain, hardware: Hardware) -> tuple[Draft, _Tile]:
        """Splits the output into parallel blocks of rows, and these into register tiles."""
        name, lanes = chain.output.name, hardware.float_lanes
        *outer, row, column = chain.output.axes
        group, rows = f"{name}.{row.name}", blocks_of_tiles(int(row.extent.value))
        draft, (count, tile) = draft.choose_row(group, ("tiles", "tile"), rows)
        # Vectors alone: blocks of rows are the parallel loop already.
        wide = [(v,) for m, v in vector_tiles(int(column.extent.value), lanes, MAX_VECTORS) if m == 1]
        draft, (vectors,) = draft.choose_row(f"{name}.{column.name}", ("vectors",), wide)
        draft = draft.require("registers", lift(tile) * vectors + vectors + 1, hardware.vector_registers)
        # Two splits, so that only blocks may begin earlier; the tiles of a block divide it, and are alike in all
        # stages.
        draft, (i0, within) = draft.split(name, row.name, (lift(count) * tile,), "clamp")
        draft, (i1, i2) = draft.split(name, within, (tile,))
        draft, (j0, j1, j2) = draft.split(name, column.name, (vectors, lanes), "guard")
        parallel = (*(a.name for a in outer), i0)
        draft = draft.reorder(name, *parallel, i1, j0, i2, j1, j2)
        draft, block = draft.fuse(name, parallel)
        draft = draft.parallel(name, block).in_registers(name, (i2, j1, j2))
        return draft, _Tile(tile, vectors, block, j0)

    def second(self, draft: Draft, chain: _Chain, tile: _Tile, hardware: Hardware) -> Draft:
        """Accumulates a tile of registers over the whole row."""
        name = chain.second.name
        draft = draft.set_scope(name, "local").compute_at(name, chain.output.name, tile.loop)
        return self.accumulate_in_registers(
            draft, name, (tile.rows, tile.vectors), (chain.output.name, tile.block), hardware
        )

    def accumulate_in_registers(
        self,
        draft: Draft,
        name: str,
        tile: tuple[Number, Number],
        block: tuple[str, Loop],
        hardware: Hardware,
        tail: str = "exact",
    ) -> Draft:
        """Makes the loops of a sum into a tile of registers: the reduction outermost, some steps of it unrolled.

        Args:
            tile: rows and vectors.
            block: the output, and its loop over blocks of rows: where a factor is copied for an instruction.
            tail: tail of the rows of that copy, in vectors.
        """
        stage = draft.stage(name)
        if (match := matching_intrinsic(draft, stage, hardware)) is not None:
            return self.tensorize_sum(draft, name, tile, match[0], (block, tail), hardware)
        *spatial, last = stage.spatial
        (axis,) = stage.reduce_axes
        extent = int(axis.extent.value)
        unrolls = reduce_tiles(extent, MAX_REDUCE_UNROLL)
        draft, (unroll,) = draft.choose_row(f"{name}.{axis.name}", ("unroll",), unrolls)
        # One tail for all candidates, since another tail is another loop tree.
        tail = "exact" if all(extent % u == 0 for (u,) in unrolls) else "peel"
        draft = draft.require("unrolled operations", lift(product(tile)) * unroll, MAX_UNROLL)
        draft, (r0, r1) = draft.split(name, axis.name, (unroll,), tail)
        draft, (j0, j1) = draft.split(name, last, (hardware.float_lanes,))
        inner = (r1, *spatial, j0, j1)
        return draft.reorder(name, r0, *inner).in_registers(name, inner)

    def tensorize_sum(
        self,
        draft: Draft,
        name: str,
        tile: tuple[Number, Number],
        intrinsic: TensorIntrin,
        copy_at: tuple[tuple[str, Loop], str],
        hardware: Hardware,
    ) -> Draft:
        """Makes the loops of a sum with an instruction innermost.

        Args:
            copy_at: loop at which the right factor is copied for the instruction, and the tail of its rows.
        """
        stage, depth = draft.stage(name), intrinsic.extents[1]
        *spatial, last = stage.spatial
        (axis,) = stage.reduce_axes
        (node,) = (n for n in walk(stage.body) if n.op == "load" and interleavable(draft, stage, n, axis.name))
        steps = int(axis.extent.value) // depth
        unrolls = reduce_tiles(steps, MAX_REDUCE_UNROLL)
        draft, (unroll,) = draft.choose_row(f"{name}.{axis.name}", ("unroll",), unrolls)
        tail = "exact" if all(steps % u == 0 for (u,) in unrolls) else "peel"
        draft = draft.require("unrolled operations", lift(product(tile)) * unroll, MAX_UNROLL)
        draft, (r, within) = draft.split(name, axis.name, (depth,))
        draft, (r0, r1) = draft.split(name, r, (unroll,), tail)
        draft, (j0, j1) = draft.split(name, last, (hardware.float_lanes,))
        inner = (r1, *spatial, j0, j1)
        draft = draft.reorder(name, r0, *inner, within).in_registers(name, inner)
        draft = draft.tensorize(name, j1, intrinsic.name)
        draft, copy = interleave_operand(draft, stage, node, (axis.name, last), depth)
        block, rows = copy_at
        return in_vectors(draft, copy, depth * hardware.float_lanes, rows).compute_at(copy, *block)

    def between(self, draft: Draft, chain: _Chain, tile: _Tile, hardware: Hardware) -> Draft:
        """Computes the stages of the rows for all rows of a block: each loops over rows, in vectors along them."""
        lanes = hardware.float_lanes
        # One choice for all stages of the rows: a choice for each would multiply the size of the space.
        draft, accumulators = draft.choose("accumulators", AT_ONCE)
        draft, unroll = draft.choose("unroll", (1, 2, 4))
        for member in reversed(chain.rows):
            name = member.name
            draft = draft.compute_at(name, chain.output.name, tile.block)
            if member.reducer is not None:
                draft, partial = in_parts(draft, name, accumulators, lanes)
                draft = reduction(draft, name, partial, (name, member.spatial[-1]), lanes)
            elif len(member.axes) > chain.leading:
                draft = vectors(draft, name, member.spatial[-1], unroll, lanes)
                draft = spread(draft, name, hardware)
        return draft

    def first(self, draft: Draft, chain: _Chain, tile: _Tile, hardware: Hardware) -> Draft:
        """Computes the first product of a block of rows, columns outermost: a tile of its right factor serves all."""
        name, lanes = chain.first.name, hardware.float_lanes
        *outer, row, column = chain.first.spatial
        extent = int(chain.first.axes[-1].extent.value)
        # Columns that are computed twice cost less than masks, if a whole number of vectors fits.
        wide = [t // lanes for (t,) in clamped_tiles(extent, MAX_VECTORS * lanes, 1) if t % lanes == 0]
        tail = "clamp" if wide else "guard"
        counts = wide or [v for m, v in vector_tiles(extent, lanes, MAX_VECTORS) if m == 1]
        draft, (vectors,) = draft.choose_row(f"{name}.{column}", ("vectors",), [(v,) for v in counts])
        draft = draft.require("registers", lift(tile.rows) * vectors + vectors + 1, hardware.vector_registers)
        draft, sums = draft.cache_write(name, "local")
        draft = draft.compute_at(name, chain.output.name, tile.block)
        draft, (i0, i1) = draft.split(name, row, (tile.rows,))
        draft, (j0, within) = draft.split(name, column, (lift(vectors) * lanes,), tail)
        draft, (j1, j2) = draft.split(name, within, (lanes,))
        draft = draft.reorder(name, *outer, j0, i0, i1, j1, j2).in_registers(name, (i1, j1, j2))
        draft = spread(draft.compute_at(sums, name, i0), name, hardware)
        rows = "clamp" if wide else "exact"  # the copy has complete rows, or reaches as far as vectors past their end
        return self.accumulate_in_registers(
            draft, sums, (tile.rows, vectors), (chain.output.name, tile.block), hardware, rows
        )


def blocks_of_tiles(extent: int) -> list[tuple[int, int]]:
    """Lists (tiles of a block, rows of a tile) of an axis cut into blocks of rows; the last block begins earlier."""
    return [
        (count, tile)
        for tile in range(1, min(extent, MAX_TILE) + 1)
        for count in range(1, MAX_TILES + 1)
        if count * tile <= extent and ceildiv(extent, count * tile) * count * tile <= extent * MAX_WASTE
    ]
