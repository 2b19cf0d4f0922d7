"""Transformed products, such as Winograd convolution: blocks of tiles are transformed, multiplied, transformed back.

A block of output tiles is small enough that its transformed input stays in cache. For every position in a tile there is
one product of matrices (tiles x channels by channels x filters), held in registers over the whole reduction. The
transforms run in registers, vectors along the channels. Tiles and weights of 16 bits are multiplied by an instruction.
"""

from __future__ import annotations

from dataclasses import dataclass

from search_space.hardware import Hardware
from search_space.ir.expr import Expr, dtype_bytes, lift, product, variables, walk
from search_space.machines.cpu.spread import spread
from search_space.machines.cpu.tiling import MAX_REDUCE_UNROLL, MAX_UNROLL, PREFETCH_BYTES
from search_space.machines.shared.instructions import matching_intrinsic
from search_space.schedule.builder import Loop
from search_space.schedule.intrinsics import TensorIntrin
from search_space.schedule.state import Stage
from search_space.sketch.base import Draft, SketchRule
from search_space.sketch.reads import list_reads
from search_space.sketch.tables import nested_tiles, reduce_tiles, vector_tiles
from search_space.tags import Tag

MAX_TILE = 14
"""Greatest number of Winograd tiles along one side of a register tile."""
MAX_VECTORS = 4
"""Greatest number of vectors of filters in a register tile."""
FLOAT_BYTES = 4
"""Bytes of a float32, the type of sums; factors of fewer bytes are rounded for an instruction."""


@dataclass(frozen=True)
class _Chain:
    """The stages of a transformed product, by name, and their properties.

    Attributes:
        output: last stage, (n, h, w, k); the last pass of the transform back is part of it.
        back: (i, j, n, y, x, k) first pass of the transform back.
        products: (i, j, n, y, x, k), a sum over channels.
        tiles, rows: (i, j, n, y, x, c) the second and the first pass of the transform of the input.
        weights: (i, j, c, k) the transformed weights: a constant, or a stage that transforms them at each call.
        weight_rows: the first pass of that stage; "" for a constant.
        intrinsic: the instruction that the innermost loops of the products become; None: multiply-adds of vectors.
        m: output rows and columns of a tile.
        positions: number of positions in a transformed tile.
    """

    output: str
    back: str
    products: str
    tiles: str
    rows: str
    weights: str
    weight_rows: str
    intrinsic: TensorIntrin | None
    m: tuple[int, int]
    positions: int

    @property
    def steps(self) -> int:
        """Channels that one instruction takes."""
        return self.intrinsic.extents[1] if self.intrinsic is not None else 1


@dataclass(frozen=True)
class _Numbers:
    """Decisions: tiles of a block along y and x, those of a register tile, vectors of filters, steps of the sum."""

    block: tuple[Expr | int, Expr | int]
    tile: tuple[Expr | int, Expr | int]
    blocks: Expr | int
    vectors: Expr | int
    unroll: Expr | int


class TransformedProducts(SketchRule):
    """Blocks of tiles or of filters in parallel, the input transformed for each; or for the whole image, before."""

    name = "transformed_products"

    def matches(self, draft: Draft, stage: Stage, hardware: Hardware) -> bool:
        return stage.name in draft.state.outputs and self.chain(draft, stage, hardware) is not None

    def chain(self, draft: Draft, output: Stage, hardware: Hardware) -> _Chain | None:
        """Finds the stages that lead to `output`, if they form a transformed product."""
        stages: list[Stage] = [output]
        # Output, back, products, tiles, rows: four steps up, each with one transformed producer.
        for _ in range(4):
            kept = [r for r in draft.producers(stages[-1]) if r.tag == Tag.TRANSFORM]
            if len(kept) != 1:
                return None
            stages += kept
        _, back, products, tiles, rows = stages
        weights = [r for r in products.reads() if (i := draft.state.input(r)) is not None and i.constant]
        weight_rows = ""
        for computed in (s for s in draft.producers(products) if s.tag == Tag.FILTERS):
            weights.append(computed.name)
            (weight_rows,) = (s.name for s in draft.producers(computed) if s.tag == Tag.FILTERS)
        if products.reducer != "sum" or len(weights) != 1:
            return None
        intrinsic, _ = matching_intrinsic(draft, products, hardware) or (None, None)
        positions = int(products.axes[0].extent.value * products.axes[1].extent.value)
        names = (output.name, back.name, products.name, tiles.name, rows.name, weights[0], weight_rows)
        return _Chain(*names, intrinsic, self.tile(draft, output, back), positions)

    def tile(self, draft: Draft, output: Stage, back: Stage) -> tuple[int, int]:
        """Returns output rows and columns of a tile: divisors of the output's indices that give the tile's index."""
        index = list_reads(draft, output, back.name)[0]
        sizes = []
        for axis, place in zip(output.axes[1:3], index[3:5], strict=True):
            divided = [n.args[1] for n in walk(place) if n.op == "floordiv" and axis.name in variables(n)]
            # An index that is not divided is the position in the tile, or there is only one tile.
            alone = 1 if axis.name in variables(place) else axis.extent
            sizes.append(int((divided[0] if divided else lift(alone)).value))
        return sizes[0], sizes[1]

    def apply(self, draft: Draft, stage: Stage, hardware: Hardware) -> list[Draft]:
        chain = self.chain(draft, stage, hardware)
        assert chain is not None
        if chain.intrinsic is None and dtype_bytes(draft.stage(chain.tiles).dtype) < FLOAT_BYTES:
            return []  # tiles that are rounded for an instruction gain nothing without it
        draft, numbers = self.decisions(draft, chain, hardware)
        out = []
        # By blocks the transformed input stays in cache, but weights are read once for each; for the whole image it is
        # the other way round. Cores that divide the filters among them read all tiles: these come from the caches of
        # the cores that transformed them, or each core transforms all its tiles by itself.
        for name, filters, ahead in (("block", False, False), ("image", True, True), ("filters", True, False)):
            done = self.limits(draft, chain, numbers, ahead, hardware)
            done, around = self.output(done, chain, numbers, filters, hardware)
            done, sums = self.multiply(done, chain, numbers, hardware)
            done = self.transform(done, chain, None if ahead else around, hardware)
            names = [chain.output, chain.back, chain.products, sums, chain.tiles, chain.rows]
            if chain.weight_rows:
                done = self.transform_weights(done, chain, hardware)
                names += [chain.weights, chain.weight_rows]
            out.append(done.variant(name).finish(*names))
        return out

    # ------------------------------------------------------------------ decisions
    def decisions(self, draft: Draft, chain: _Chain, hardware: Hardware) -> tuple[Draft, _Numbers]:
        products, name = draft.stage(chain.products), chain.output
        rows, columns, filters = (int(a.extent.value) for a in products.axes[-3:])
        depth = int(products.reduce_axes[0].extent.value)
        sides = []
        for axis, extent in (("y", rows), ("x", columns)):
            draft, side = draft.choose_row(f"{name}.{axis}", ("block", "tile"), nested_tiles(extent, MAX_TILE))
            sides.append(side)
        table = vector_tiles(filters, hardware.float_lanes, MAX_VECTORS)
        draft, (blocks, vectors) = draft.choose_row(f"{name}.k", ("blocks", "vectors"), table)
        # Few steps are never better; if the most steps are too many, the next fewer are not.
        unrolls = reduce_tiles(depth // chain.steps, MAX_REDUCE_UNROLL)[-2:]
        draft, (unroll,) = draft.choose_row(f"{name}.c", ("unroll",), unrolls)
        (y, x) = sides
        return draft, _Numbers((y[0], x[0]), (y[1], x[1]), blocks, vectors, unroll)

    def limits(self, draft: Draft, chain: _Chain, numbers: _Numbers, untiled: bool, hardware: Hardware) -> Draft:
        """Limits the accumulators to the registers, and data between the transforms to twice the second-level cache."""
        accumulators = lift(product(numbers.tile)) * numbers.vectors
        draft = draft.require("registers", accumulators + numbers.vectors + 1, hardware.vector_registers)
        draft = draft.require("unrolled operations", accumulators * numbers.unroll, MAX_UNROLL)
        depth = int(draft.stage(chain.products).reduce_axes[0].extent.value)
        # The transformed input of the whole image is in memory anyway: only the products count.
        kept = lift(numbers.blocks) * numbers.vectors * hardware.float_lanes * FLOAT_BYTES
        kept = kept + (0 if untiled else depth * dtype_bytes(draft.stage(chain.tiles).dtype))
        tile = product(numbers.block) * chain.positions
        return draft.require("bytes between transforms", kept * tile, 2 * hardware.l2_bytes)

    # ------------------------------------------------------------------ loops
    def output(
        self, draft: Draft, chain: _Chain, numbers: _Numbers, filters: bool, hardware: Hardware
    ) -> tuple[Draft, Loop]:
        """Makes parallel blocks, tile by tile inside, the transform back in registers; returns the loop over blocks.

        Args:
            filters: whether blocks of filters run in parallel, too.
        """
        name, lanes = chain.output, hardware.float_lanes
        n, *sides, k = draft.stage(name).axes
        blocks, tiles, point = [], [], []
        for axis, block, m in zip(sides, numbers.block, chain.m, strict=True):
            tail = "exact" if axis.extent.value % m == 0 else "guard"
            draft, (tile, row) = draft.split(name, axis.name, (m,), tail)
            draft, (outer, within) = draft.split(name, tile, (block,), "clamp")
            blocks.append(outer)
            tiles.append(within)
            point.append(row)
        draft, (k0, k1, k2, k3) = draft.split(name, k.name, (numbers.blocks, numbers.vectors, lanes), "guard")
        # Filters outermost: a block of weights serves all tiles before the next one is read.
        parallel, serial = ((k0, n.name, *blocks), ()) if filters else ((n.name, *blocks), (k0,))
        draft = draft.reorder(name, *parallel, *serial, *tiles, k1, k2, *point, k3)
        draft, around = draft.fuse(name, parallel)
        draft = draft.parallel(name, around).in_registers(name, (*point, k3)).set_scope(chain.back, "local")
        # The copy that is stored may be clamped and computed twice; the sums themselves must not.
        draft, _ = draft.cache_write(chain.products, "local")
        draft = draft.compute_at(chain.back, name, k2)
        draft = draft.compute_at(chain.products, name, around if filters else k0)
        i, j, *place, c = draft.stage(chain.back).spatial
        return draft.reorder(chain.back, *place, j, i, c).in_registers(chain.back, (j, i, c)), around

    def multiply(self, draft: Draft, chain: _Chain, numbers: _Numbers, hardware: Hardware) -> tuple[Draft, str]:
        """Accumulates register tiles of the products over all channels and stores them; returns the stage of sums."""
        name, lanes = chain.products, hardware.float_lanes
        (sums,) = (s.name for s in draft.producers(draft.stage(name)))
        i, j, n, y, x, k = draft.stage(sums).spatial
        draft, (y0, y1) = draft.split(name, y, (numbers.tile[0],), "clamp")
        draft, (x0, x1) = draft.split(name, x, (numbers.tile[1],), "clamp")
        draft, (k0, k1, k2) = draft.split(name, k, (numbers.vectors, lanes))
        inner = (y1, x1, k1, k2)
        draft = draft.reorder(name, i, j, n, k0, y0, x0, *inner).in_registers(name, inner)
        draft = draft.compute_at(sums, name, x0)

        (channels,) = draft.stage(sums).reduce_axes
        depth, steps = int(channels.extent.value), chain.steps
        rows = reduce_tiles(depth // steps, MAX_REDUCE_UNROLL)
        tail = "exact" if all(depth // steps % r == 0 for (r,) in rows) else "peel"
        pairs = () if chain.intrinsic is None else (steps,)
        outer: Loop = channels.name
        pair: list[Loop] = []
        if pairs:
            draft, (outer, *pair) = draft.split(sums, outer, pairs)
        draft, (r0, r1) = draft.split(sums, outer, (numbers.unroll,), tail)
        draft, (vectors, vector) = draft.split(sums, k, (lanes,))
        unrolled = (r1, y, x, vectors, vector)
        draft = draft.reorder(sums, i, j, n, r0, *unrolled, *pair).in_registers(sums, unrolled)
        if chain.intrinsic is not None:
            draft = draft.tensorize(sums, vector, chain.intrinsic.name)
        if chain.weight_rows:
            return draft, sums
        # Blocks of filters, position, vectors' block, channels, filters: the order of the loops above.
        parts = ((3, 0), (0, 0), (1, 0), (3, 1), (2, 0), (3, 2), *(((2, 1),) if pairs else ()))
        draft = draft.pack(chain.weights, ((), (), pairs, (numbers.blocks, lift(numbers.vectors) * lanes)), parts)
        weights = draft.state.input(chain.weights)
        assert weights is not None
        if dtype_bytes(weights.dtype) * chain.positions * depth * int(weights.shape[-1]) > hardware.l1_bytes:
            draft = draft.pragma(sums, r0, "prefetch_bytes", PREFETCH_BYTES)
        return draft, sums

    def transform(self, draft: Draft, chain: _Chain, block: Loop | None, hardware: Hardware) -> Draft:
        """Transforms the input: a vector of channels of a tile at a time, both passes in registers.

        Args:
            block: the output's loop over blocks if the input is transformed for each; None if it is transformed before.
        """
        name, lanes = chain.tiles, hardware.float_lanes
        if block is not None:
            draft = draft.compute_at(name, chain.output, block)
        i, j, *tiles, c = draft.stage(name).spatial
        tail = "exact" if draft.stage(name).axes[-1].extent.value % lanes == 0 else "guard"
        draft, (vectors, vector) = draft.split(name, c, (lanes,), tail)
        draft = draft.reorder(name, *tiles, vectors, i, j, vector).in_registers(name, (i, j, vector))
        if block is None:
            draft, fused = draft.fuse(name, tiles)
            draft = draft.parallel(name, fused)
        draft = draft.compute_at(chain.rows, name, vectors).set_scope(chain.rows, "local")
        i, s, *tiles, c = draft.stage(chain.rows).spatial
        draft = draft.reorder(chain.rows, *tiles, s, i, c).in_registers(chain.rows, (s, i, c))
        return spread(draft, name, hardware)

    def transform_weights(self, draft: Draft, chain: _Chain, hardware: Hardware) -> Draft:
        """Transforms weights that are no constants, before all else: a vector of filters at a time, in registers."""
        name, lanes = chain.weights, hardware.float_lanes
        i, j, *others, k = draft.stage(name).spatial
        tail = "exact" if draft.stage(name).axes[-1].extent.value % lanes == 0 else "guard"
        draft, (vectors, vector) = draft.split(name, k, (lanes,), tail)
        draft = draft.reorder(name, *others, vectors, i, j, vector).in_registers(name, (i, j, vector))
        draft, fused = draft.fuse(name, others)
        draft = draft.parallel(name, fused)
        draft = draft.compute_at(chain.weight_rows, name, vectors).set_scope(chain.weight_rows, "local")
        i, s, *others, k = draft.stage(chain.weight_rows).spatial
        return draft.reorder(chain.weight_rows, *others, s, i, k).in_registers(chain.weight_rows, (s, i, k))
