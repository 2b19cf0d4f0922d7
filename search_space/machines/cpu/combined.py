"""Strassen's products: blocks in which all products of quarters are accumulated, then combined into all four quarters.

A block is small enough that its products stay in cache. Each product is a tile of registers at a time, held over the
whole reduction. The quarters are combined in registers, together with the epilogue. The left factor's sums are computed
before, or for each block.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from search_space.hardware import Hardware
from search_space.ir.expr import Expr, dtype_bytes, lift, product
from search_space.machines.cpu.spread import spread
from search_space.machines.cpu.tiling import MAX_REDUCE_UNROLL, MAX_TILE, MAX_UNROLL, PREFETCH_BYTES
from search_space.machines.shared.groups import MAX_VECTORS
from search_space.schedule.builder import Loop
from search_space.schedule.state import Stage
from search_space.sketch.base import Draft, SketchRule
from search_space.sketch.tables import block_counts, clamped_tiles, reduce_tiles, vector_tiles
from search_space.tags import Tag

WHERE = ("image", "block")
"""Variants: "image" computes all sums of the left factor before, and blocks go along the rows of the output first, so
that weights are read once. "block" computes them for each block of rows, whose columns follow one another."""


@dataclass(frozen=True)
class _Chain:
    """The stages, by name, and the constant.

    Attributes:
        output: (n..., rows, spatial..., columns), stored; the ending is part of it.
        products: (p, n..., half of the rows, spatial..., half of the columns), sums.
        left: (p, n..., rows, spatial..., channels), sums of quarters.
        weights: (p, kernel..., channels, half of the columns), a constant.
    """

    output: str
    products: str
    left: str
    weights: str


@dataclass(frozen=True)
class _Numbers:
    """Decisions: elements of a block and of a tile along each side, vectors of a tile, tiles of a block, unrolling."""

    blocks: tuple[Expr | int, ...]
    tiles: tuple[Expr | int, ...]
    count: Expr | int
    vectors: Expr | int
    unroll: Expr | int


class CombinedProducts(SketchRule):
    """Blocks of all four quarters of the output in parallel."""

    name = "combined_products"

    def matches(self, draft: Draft, stage: Stage, hardware: Hardware) -> bool:
        return stage.name in draft.state.outputs and self.chain(draft, stage) is not None

    def chain(self, draft: Draft, output: Stage) -> _Chain | None:
        """Finds the stages that lead to `output`, if they are products of sums of quarters."""
        stages = [output]
        for _ in range(2):
            kept = [r for r in draft.producers(stages[-1]) if r.tag == Tag.TRANSFORM]
            if len(kept) != 1:
                return None
            stages += kept
        _, products, left = stages
        constants = [r for r in products.reads() if (i := draft.state.input(r)) is not None and i.constant]
        if products.reducer != "sum" or len(constants) != 1:
            return None
        return _Chain(output.name, products.name, left.name, constants[0])

    def apply(self, draft: Draft, stage: Stage, hardware: Hardware) -> list[Draft]:
        chain = self.chain(draft, stage)
        assert chain is not None
        draft, numbers = self.decisions(draft, chain, hardware)
        out = []
        for where in WHERE:
            done, around = self.output(draft, chain, numbers, where, hardware)
            done, sums = self.multiply(done, chain, numbers, around, hardware)
            done = self.sums(done, chain, around if where == "block" else None, hardware)
            out.append(done.variant(where).finish(chain.output, chain.products, sums, chain.left))
        return out

    # ------------------------------------------------------------------ decisions
    def decisions(self, draft: Draft, chain: _Chain, hardware: Hardware) -> tuple[Draft, _Numbers]:
        """Decides the sizes: accumulators must fit the registers, the products of a block the second-level cache."""
        products, name = draft.stage(chain.products), chain.output
        count, *sides, columns = products.axes
        sizes = []
        for side in sides:
            extent = int(side.extent.value)
            rows = [(b, t) for b in block_counts(extent) for (t,) in clamped_tiles(b, MAX_TILE, 1)]
            draft, size = draft.choose_row(f"{name}.{side.name}", ("block", "tile"), rows)
            sizes.append(size)
        lanes = hardware.float_lanes
        table = vector_tiles(int(columns.extent.value), lanes, MAX_VECTORS)
        draft, (blocks, vectors) = draft.choose_row(f"{name}.{columns.name}", ("blocks", "vectors"), table)
        channels = products.reduce_axes[-1]
        unrolls = reduce_tiles(int(channels.extent.value), MAX_REDUCE_UNROLL)
        draft, (unroll,) = draft.choose_row(f"{name}.{channels.name}", ("unroll",), unrolls)
        numbers = _Numbers(tuple(b for b, _ in sizes), tuple(t for _, t in sizes), blocks, vectors, unroll)
        accumulators = lift(product(numbers.tiles)) * vectors
        draft = draft.require("registers", accumulators + vectors + 1, hardware.vector_registers)
        draft = draft.require("unrolled operations", accumulators * unroll, MAX_UNROLL)
        kept = lift(blocks) * vectors * lanes * product(numbers.blocks) * int(count.extent.value)
        return draft.require("bytes of products", kept * dtype_bytes(products.dtype), hardware.l2_bytes), numbers

    # ------------------------------------------------------------------ loops
    def output(
        self, draft: Draft, chain: _Chain, numbers: _Numbers, where: str, hardware: Hardware
    ) -> tuple[Draft, Loop]:
        """Makes parallel blocks, all quarters of a vector in registers; returns the loop around the products."""
        name, lanes = chain.output, hardware.float_lanes
        *sides, last = draft.stage(name).axes
        halves = draft.stage(chain.products).axes[1:-1]
        blocks, within, point = [], [], []
        for axis, half, block in zip(sides, halves, numbers.blocks, strict=True):
            loop: Loop = axis.name
            if axis.extent.value != half.extent.value:  # rows
                tail = "exact" if axis.extent.value % half.extent.value == 0 else "guard"
                draft, (upper, loop) = draft.split(name, loop, (int(half.extent.value),), tail)
                point.append(upper)
            draft, (outer, inner) = draft.split(name, loop, (block,), "clamp")
            blocks.append(outer)
            within.append(inner)
        tail = "exact" if last.extent.value % (2 * lanes) == 0 else "guard"
        draft, (columns, side, lane) = draft.split(name, last.name, (2, lanes), tail)
        draft, (k0, k1, k2) = draft.split(name, columns, (numbers.count, numbers.vectors), "guard")
        point += [side, lane]
        parallel, serial = (blocks, [k0]) if where == "block" else ([k0, *blocks], [])
        draft = draft.reorder(name, *parallel, *serial, *within, k1, k2, *point)
        draft, around = draft.fuse(name, tuple(parallel))
        draft = draft.parallel(name, around).in_registers(name, point)
        # The stored copy may be clamped and computed twice; the sums themselves must not.
        draft, _ = draft.cache_write(chain.products, "local")
        return draft.compute_at(chain.products, name, serial[0] if serial else around), around

    def multiply(
        self, draft: Draft, chain: _Chain, numbers: _Numbers, around: Loop, hardware: Hardware
    ) -> tuple[Draft, str]:
        """Accumulates register tiles of the products over all channels and stores them; returns the stage of sums."""
        name, lanes = chain.products, hardware.float_lanes
        (sums,) = (s.name for s in draft.producers(draft.stage(name)))
        number, *sides, columns = draft.stage(sums).spatial
        outer, inner = [], []
        for side, tile in zip(sides, numbers.tiles, strict=True):
            draft, (first, rest) = draft.split(name, side, (tile,), "clamp")
            outer.append(first)
            inner.append(rest)
        draft, (k0, k1, k2) = draft.split(name, columns, (numbers.vectors, lanes))
        draft = draft.reorder(name, number, k0, *outer, *inner, k1, k2).in_registers(name, (*inner, k1, k2))
        draft = draft.compute_at(sums, name, outer[-1])

        *window, channels = draft.stage(sums).reduction
        depth = int(draft.stage(sums).reduce_axes[-1].extent.value)
        tail = "exact" if all(depth % row == 0 for (row,) in reduce_tiles(depth, MAX_REDUCE_UNROLL)) else "peel"
        draft, (r0, r1) = draft.split(sums, channels, (numbers.unroll,), tail)
        draft, (vectors, lane) = draft.split(sums, columns, (lanes,))
        unrolled = (r1, *sides, vectors, lane)
        draft = draft.reorder(sums, number, *window, r0, *unrolled).in_registers(sums, unrolled)
        width = lift(numbers.vectors) * lanes
        factors = ((), *(() for _ in window), (), (numbers.count, width))
        end = len(factors) - 1
        # Blocks of columns, product, tiles of a block, window, channels, columns: the order of the loops above.
        order = ((end, 0), (0, 0), (end, 1), *((d, 0) for d in range(1, end)), (end, 2))
        draft = draft.pack(chain.weights, factors, order)
        return draft.pragma(sums, r0, "prefetch_bytes", PREFETCH_BYTES), sums

    def sums(self, draft: Draft, chain: _Chain, block: Loop | None, hardware: Hardware) -> Draft:
        """Computes the left factor's sums: a vector of channels of all of them at a time, in registers.

        Args:
            block: the output's loop over blocks if the sums are computed for each block; None if they are computed
                before.
        """
        name, lanes = chain.left, hardware.float_lanes
        if block is not None:
            draft = draft.compute_at(name, chain.output, block)
        place, *sides, channels = draft.stage(name).spatial
        tail = "exact" if draft.stage(name).axes[-1].extent.value % lanes == 0 else "guard"
        draft, (vectors, vector) = draft.split(name, channels, (lanes,), tail)
        draft = draft.reorder(name, *sides, vectors, place, vector).in_registers(name, (place, vector))
        if block is not None:
            outer = (chain.output, block)
        else:
            draft, fused = draft.fuse(name, tuple(sides))
            draft, outer = draft.parallel(name, fused), (name, fused)
        return replace(spread(draft, name, hardware), anchors={**draft.anchors, name: (outer,)})
