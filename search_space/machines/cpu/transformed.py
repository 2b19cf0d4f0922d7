"""Transformed products, such as Winograd convolution: blocks of tiles are transformed, multiplied, transformed back.

A block of output tiles is small enough that its transformed input stays in cache. For every position in a tile there is
one product of matrices (tiles x channels by channels x filters), held in registers over the whole reduction. The
transforms run in registers, vectors along the channels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from search_space.hardware import Hardware
from search_space.ir.expr import Expr, lift, product
from search_space.machines.cpu.spread import spread
from search_space.machines.cpu.tiling import MAX_REDUCE_UNROLL, MAX_UNROLL, PREFETCH_BYTES
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
)
from search_space.sketch.base import Draft, SketchRule
from search_space.sketch.tables import DecisionGroup, nested_tiles, reduce_tiles, vector_tiles
from search_space.tags import TRANSFORM

MAX_TILE = 14
MAX_VECTORS = 4
FLOAT_BYTES = 4


@dataclass(frozen=True)
class _Chain:
    """The stages of a transformed product, by name, and what is known of them.

    Attributes:
        output: what is stored, (n, h, w, k); the last pass of the transform back is part of it.
        back: (i, j, n, y, x, k) its first pass.
        products: (i, j, n, y, x, k), a sum over channels.
        tiles, rows: (i, j, n, y, x, c) the second and the first pass of the transform of the input.
        weights: (i, j, c, k) the transformed weights, a constant.
        m: output rows and columns of a tile; size: positions along one side of a transformed tile.
    """

    output: str
    back: str
    products: str
    tiles: str
    rows: str
    weights: str
    m: int
    size: int


@dataclass(frozen=True)
class _Numbers:
    """Decisions: tiles of a block along y and x, those of a register tile, vectors of filters, steps of the sum."""

    block: tuple[Expr | int, Expr | int]
    tile: tuple[Expr | int, Expr | int]
    blocks: Expr | int
    vectors: Expr | int
    unroll: Expr | int


class TransformedProducts(SketchRule):
    """Blocks of tiles in parallel, the input transformed for each block; or for the whole image, before."""

    name = "transformed_products"

    def matches(self, draft: Draft, stage: Stage, hardware: Hardware) -> bool:
        return stage.name in draft.state.outputs and self.chain(draft, stage) is not None

    def chain(self, draft: Draft, output: Stage) -> _Chain | None:
        """The stages that lead to `output`, if they form a transformed product."""
        found: list[Stage] = [output]
        for _ in range(4):
            kept = [r for r in draft.producers(found[-1]) if r.tag == TRANSFORM]
            if len(kept) != 1:
                return None
            found += kept
        _, back, products, tiles, rows = found
        constants = [r for r in products.reads() if (i := draft.state.input(r)) is not None and i.constant]
        if products.reducer != "sum" or len(constants) != 1:
            return None
        m, size = (int(s.axes[0].extent.value) for s in (back, products))
        return _Chain(output.name, back.name, products.name, tiles.name, rows.name, constants[0], m, size)

    def apply(self, draft: Draft, stage: Stage, hardware: Hardware) -> list[Draft]:
        chain = self.chain(draft, stage)
        assert chain is not None
        draft, numbers = self.decisions(draft, chain, hardware)
        out = []
        for whole in (False, True):
            done = self.limits(draft, chain, numbers, whole, hardware)
            done = self.output(done, chain, numbers, whole, hardware)
            done = self.multiply(done, chain, numbers, hardware)
            if not whole:
                done = done.apply(ComputeAt(chain.tiles, chain.output, done.state.stage(chain.output).leaves[0]))
            done = self.transform(done, chain, whole, hardware)
            names = (chain.output, chain.back, chain.products, f"{chain.products}.local", chain.tiles, chain.rows)
            out.append(done.variant("image" if whole else "block").finish(*names))
        return out

    # ------------------------------------------------------------------ decisions
    def decisions(self, draft: Draft, chain: _Chain, hardware: Hardware) -> tuple[Draft, _Numbers]:
        products, name = draft.state.stage(chain.products), chain.output
        rows, columns, filters = (int(a.extent.value) for a in products.axes[-3:])
        depth = int(products.reduce_axes[0].extent.value)
        sides = []
        for axis, extent in (("y", rows), ("x", columns)):
            group = (f"{name}.{axis}.block", f"{name}.{axis}.tile")
            draft, side = draft.decide(DecisionGroup.of(f"{name}.{axis}", group, nested_tiles(extent, MAX_TILE)))
            sides.append(side)
        table = vector_tiles(filters, hardware.float_lanes, MAX_VECTORS)
        group = (f"{name}.k.blocks", f"{name}.k.vectors")
        draft, (blocks, vectors) = draft.decide(DecisionGroup.of(f"{name}.k", group, table))
        unrolls = reduce_tiles(depth, MAX_REDUCE_UNROLL)
        draft, (unroll,) = draft.decide(DecisionGroup.of(f"{name}.c", (f"{name}.c.unroll",), unrolls))
        (y, x) = sides
        return draft, _Numbers((y[0], x[0]), (y[1], x[1]), blocks, vectors, unroll)

    def limits(self, draft: Draft, chain: _Chain, numbers: _Numbers, whole: bool, hardware: Hardware) -> Draft:
        """Accumulators fit the registers; what is kept between the transforms fits the second-level cache twice."""
        accumulators = lift(product(numbers.tile)) * numbers.vectors
        draft = draft.require("registers", accumulators + numbers.vectors + 1, hardware.vector_registers)
        draft = draft.require("unrolled operations", accumulators * numbers.unroll, MAX_UNROLL)
        depth = int(draft.state.stage(chain.products).reduce_axes[0].extent.value)
        kept = lift(numbers.blocks) * numbers.vectors * hardware.float_lanes + (0 if whole else depth)
        tile = FLOAT_BYTES * chain.size**2
        return draft.require("bytes between transforms", kept * product(numbers.block) * tile, 2 * hardware.l2_bytes)

    # ------------------------------------------------------------------ loops
    def output(self, draft: Draft, chain: _Chain, numbers: _Numbers, whole: bool, hardware: Hardware) -> Draft:
        """Blocks in parallel, tile by tile inside; the transform back in registers."""
        name, lanes = chain.output, hardware.float_lanes
        n, h, w, k = (a.name for a in draft.state.stage(name).axes)
        steps: list[Step] = []
        for axis, block in zip((h, w), numbers.block, strict=True):
            extent = int(next(a.extent.value for a in draft.state.stage(name).axes if a.name == axis))
            tail = "exact" if extent % chain.m == 0 else "guard"
            steps += [Split(name, axis, (chain.m,), tail), Split(name, f"{axis}.0", (block,), "clamp")]
        steps.append(Split(name, k, (numbers.blocks, numbers.vectors, lanes), "guard"))
        blocks = (f"{k}.0", n, f"{h}.0.0", f"{w}.0.0") if whole else (n, f"{h}.0.0", f"{w}.0.0")
        serial = () if whole else (f"{k}.0",)
        within = (f"{h}.0.1", f"{w}.0.1", f"{k}.1", f"{k}.2")
        point = (f"{h}.1", f"{w}.1", f"{k}.3")
        parallel = "_".join(blocks)
        steps += [Reorder(name, (*blocks, *serial, *within, *point)), Fuse(name, blocks)]
        steps += [Annotate(name, parallel, "parallel"), *self.registers(name, point)]
        steps += [SetScope(chain.back, "local"), CacheWrite(chain.products, "local")]
        steps.append(ComputeAt(chain.back, name, f"{k}.2"))
        steps.append(ComputeAt(chain.products, name, parallel if whole else f"{k}.0"))
        i, j, *place, c = (a.name for a in draft.state.stage(chain.back).axes)
        steps += [Reorder(chain.back, (*place, j, i, c)), *self.registers(chain.back, (j, i, c))]
        return draft.apply(*steps)

    def multiply(self, draft: Draft, chain: _Chain, numbers: _Numbers, hardware: Hardware) -> Draft:
        """The products: a register tile is added up over all channels, then stored."""
        name, local, lanes = chain.products, f"{chain.products}.local", hardware.float_lanes
        stage = draft.state.stage(local)
        i, j, n, y, x, k = (a.name for a in stage.axes)
        (rc,) = stage.reduce_axes
        loops = (i, j, n, f"{k}.0", f"{y}.0", f"{x}.0")
        inner = (f"{y}.1", f"{x}.1", f"{k}.1", f"{k}.2")
        draft = draft.apply(
            Split(name, y, (numbers.tile[0],), "clamp"),
            Split(name, x, (numbers.tile[1],), "clamp"),
            Split(name, k, (numbers.vectors, lanes), "exact"),
            Reorder(name, (*loops, *inner)),
            *self.registers(name, inner),
            ComputeAt(local, name, f"{x}.0"),
        )
        depth = int(rc.extent.value)
        tail = "exact" if all(depth % r == 0 for (r,) in reduce_tiles(depth, MAX_REDUCE_UNROLL)) else "peel"
        unrolled = (f"{rc.name}.1", y, x, f"{k}.0", f"{k}.1")
        draft = draft.apply(
            Split(local, rc.name, (numbers.unroll,), tail),
            Split(local, k, (lanes,), "exact"),
            Reorder(local, (i, j, n, f"{rc.name}.0", *unrolled)),
            *self.registers(local, unrolled),
        )
        parts = ((3, 0), (0, 0), (1, 0), (3, 1), (2, 0), (3, 2))
        draft = draft.apply(Pack(chain.weights, ((), (), (), (numbers.blocks, lift(numbers.vectors) * lanes)), parts))
        shape = draft.state.stage(chain.products).shape
        if FLOAT_BYTES * chain.size**2 * depth * int(shape[-1].value) > hardware.l1_bytes:
            draft = draft.apply(Pragma(local, f"{rc.name}.0", "prefetch_bytes", PREFETCH_BYTES))
        return draft

    def transform(self, draft: Draft, chain: _Chain, whole: bool, hardware: Hardware) -> Draft:
        """The input's transform: a vector of channels of a tile at a time, both passes in registers."""
        name, lanes = chain.tiles, hardware.float_lanes
        stage = draft.state.stage(name)
        i, j, *place, c = (a.name for a in stage.axes)
        tail = "exact" if stage.axes[-1].extent.value % lanes == 0 else "guard"
        inner = (i, j, f"{c}.1")
        steps: list[Step] = [Split(name, c, (lanes,), tail), Reorder(name, (*place, f"{c}.0", *inner))]
        steps += self.registers(name, inner)
        anchor = draft.state.stage(name).attach
        outer = (anchor.stage, anchor.leaf)
        if whole:
            outer = (name, "_".join(place))
            steps += [Fuse(name, tuple(place)), Annotate(name, outer[1], "parallel")]
        steps += [ComputeAt(chain.rows, name, f"{c}.0"), SetScope(chain.rows, "local")]
        i, s, *place, c = (a.name for a in draft.state.stage(chain.rows).axes)
        steps += [Reorder(chain.rows, (*place, s, i, c)), *self.registers(chain.rows, (s, i, c))]
        draft = spread(draft.apply(*steps), name, hardware)
        return replace(draft, anchors={**draft.anchors, chain.rows: (outer,)})

    def registers(self, name: str, loops: tuple[str, ...]) -> list[Step]:
        """All unrolled but the last, which runs over the lanes of a vector."""
        unrolled = [Annotate(name, leaf, "unroll") for leaf in loops[:-1]]
        return [*unrolled, Annotate(name, loops[-1], "vectorize")]
