"""Products of the rows of a product, as in attention: what lies between stays in cache, a block of rows at a time."""

from __future__ import annotations

from dataclasses import dataclass

from search_space.hardware import Hardware
from search_space.ir.expr import Expr, lift, product
from search_space.machines.cpu.rowwise import MAX_ACCUMULATORS, RowWise
from search_space.machines.cpu.spread import spread
from search_space.machines.cpu.tiling import MAX_REDUCE_UNROLL, MAX_TILE, MAX_UNROLL, MAX_VECTORS, vector_axis
from search_space.machines.shared.rows import along_last
from search_space.schedule.state import Stage
from search_space.schedule.steps import Annotate, CacheWrite, ComputeAt, Fuse, Reorder, SetScope, Split, Step
from search_space.sketch.base import LIBRARY, Draft, SketchRule
from search_space.sketch.reads import ends_in, in_row, same_places
from search_space.sketch.tables import MAX_WASTE, DecisionGroup, ceildiv, clamped_tiles, reduce_tiles, vector_tiles

MAX_TILES = 16
"""Tiles of registers in a block of rows."""


@dataclass(frozen=True)
class _Chain:
    """The stages of a chain, each with the leading axes of the output.

    Attributes:
        output: what is stored, element by element of `second`.
        second: a sum of products along the rows of `rows[-1]`, or of `first`.
        rows: what is made of the rows of `first`, producers first.
        first: a sum of products of inputs.
    """

    output: Stage
    second: Stage
    rows: tuple[Stage, ...]
    first: Stage

    @property
    def leading(self) -> int:
        """Axes that say which row it is."""
        return len(self.output.axes) - 1


class ChainedProducts(SketchRule):
    """Blocks of rows in parallel: the first product, what is made of its rows, and the second, one after the other."""

    name = "chained_products"

    def matches(self, draft: Draft, stage: Stage, hardware: Hardware) -> bool:
        return stage.name in draft.state.outputs and stage.reducer is None and self.chain(draft, stage) is not None

    def chain(self, draft: Draft, output: Stage) -> _Chain | None:
        """The stages that lead to `output`, if they form a chain of two products."""
        live = [s for s in draft.state.stages if s.attach.kind != "inline"]
        if any(s.dtype != "float32" for s in live):
            return None
        products = [s for s in live if s.reducer == "sum" and vector_axis(s) and not along_last(s) and s.tag != LIBRARY]
        if len(products) != 2 or live[0] is not products[0] or len(output.axes) < 2:
            return None
        first, second = products
        found = _Chain(output, second, tuple(s for s in live if s not in (first, second, output)), first)
        whole = same_places(draft, second, output) and ends_in(draft, second, output)
        if not whole or len(second.reduce_axes) != 1 or len(first.reduce_axes) != 1:
            return None
        if any(s.reducer is not None and not along_last(s) for s in found.rows):
            return None
        if any(source.constant for source in draft.state.inputs if source.name in (*first.reads(), *second.reads())):
            return None  # by itself, a product has its constants packed
        return found if self.by_rows(draft, found, live) else None

    def by_rows(self, draft: Draft, chain: _Chain, live: list[Stage]) -> bool:
        """Whether all stages have the output's rows, and read each other within their own."""
        count = chain.leading
        extents = [a.extent for a in chain.output.axes[:count]]
        if any([a.extent for a in s.axes[:count]] != extents or len(s.axes) > count + 1 for s in live):
            return False
        return all(in_row(draft, stage, other.name, count) for stage in live for other in live)

    def apply(self, draft: Draft, stage: Stage, hardware: Hardware) -> list[Draft]:
        chain = self.chain(draft, stage)
        assert chain is not None
        draft, tile, block = self.output(draft, chain, hardware)
        draft = self.second(draft, chain, tile, hardware)
        draft = self.between(draft, chain, block, hardware)
        draft = self.first(draft, chain, tile, block, hardware)
        return [draft.variant("chain").finish(*(s.name for s in draft.state.stages))]

    # ------------------------------------------------------------------ loops
    def output(self, draft: Draft, chain: _Chain, hardware: Hardware) -> tuple[Draft, tuple[Expr | int, ...], str]:
        """Blocks of rows in parallel, and in each tiles of registers: rows, vectors and the loop over blocks."""
        name, lanes = chain.output.name, hardware.float_lanes
        *outer, row, column = chain.output.axes
        rows = blocks_of_tiles(int(row.extent.value))
        columns = (f"{name}.{row.name}.tiles", f"{name}.{row.name}.tile")
        draft, (count, tile) = draft.decide(DecisionGroup.of(f"{name}.{row.name}", columns, rows))
        wide = [(v,) for m, v in vector_tiles(int(column.extent.value), lanes, MAX_VECTORS) if m == 1]
        group = DecisionGroup.of(f"{name}.{column.name}", (f"{name}.{column.name}.vectors",), wide)
        draft, (vectors,) = draft.decide(group)
        i, j = row.name, column.name
        parallel = (*(a.name for a in outer), f"{i}.0")
        inner = (f"{i}.1.1", f"{j}.1", f"{j}.2")
        steps: list[Step] = [
            Split(name, i, (lift(count) * tile,), "clamp"),
            Split(name, f"{i}.1", (tile,), "exact"),
            Split(name, j, (vectors, lanes), "guard"),
            Reorder(name, (*parallel, f"{i}.1.0", f"{j}.0", *inner)),
        ]
        block = "_".join(parallel)
        if len(parallel) > 1:
            steps.append(Fuse(name, parallel))
        steps += [Annotate(name, block, "parallel"), *registers(name, inner)]
        draft = draft.require("registers", lift(tile) * vectors + vectors + 1, hardware.vector_registers)
        return draft.apply(*steps), (tile, vectors), block

    def second(self, draft: Draft, chain: _Chain, tile: tuple[Expr | int, ...], hardware: Hardware) -> Draft:
        """A tile of registers, added up over the whole row."""
        name, output = chain.second.name, chain.output.name
        column = chain.output.axes[-1].name
        draft = draft.apply(SetScope(name, "local"), ComputeAt(name, output, f"{column}.0"))
        return self.accumulated(draft, name, tile, hardware)

    def accumulated(self, draft: Draft, name: str, tile: tuple[Expr | int, ...], hardware: Hardware) -> Draft:
        """Loops of a sum into a tile of registers: the reduction outermost, some steps of it unrolled."""
        stage = draft.state.stage(name)
        *spatial, last = (a.name for a in stage.axes)
        (axis,) = stage.reduce_axes
        extent = int(axis.extent.value)
        unrolls = reduce_tiles(extent, MAX_REDUCE_UNROLL)
        group = DecisionGroup.of(f"{name}.{axis.name}", (f"{name}.{axis.name}.unroll",), unrolls)
        draft, (unroll,) = draft.decide(group)
        tail = "exact" if all(extent % u == 0 for (u,) in unrolls) else "peel"
        inner = (f"{axis.name}.1", *spatial, f"{last}.0", f"{last}.1")
        draft = draft.require("unrolled operations", lift(product(tile)) * unroll, MAX_UNROLL)
        return draft.apply(
            Split(name, axis.name, (unroll,), tail),
            Split(name, last, (hardware.float_lanes,), "exact"),
            Reorder(name, (f"{axis.name}.0", *inner)),
            *registers(name, inner),
        )

    def between(self, draft: Draft, chain: _Chain, block: str, hardware: Hardware) -> Draft:
        """What is made of the rows, for all rows of a block: a loop over rows for each stage, in vectors along them."""
        rows, output = RowWise(), chain.output.name
        draft, (accumulators,) = draft.decide(
            DecisionGroup.of("accumulators", ("accumulators",), [(u,) for u in (1, 2, 4, MAX_ACCUMULATORS)])
        )
        draft, (unroll,) = draft.decide(DecisionGroup.of("unroll", ("unroll",), [(u,) for u in (1, 2, 4)]))
        for member in reversed(chain.rows):
            draft = draft.apply(ComputeAt(member.name, output, block))
            if member.reducer is not None:
                draft = rows.factored(draft, member.name, accumulators, hardware.float_lanes)
                row = draft.state.stage(member.name).axes[-1].name
                draft = rows.reduction(draft, member.name, member.name, row, hardware.float_lanes)
            elif len(member.axes) > chain.leading:
                draft = rows.vectors(draft, member.name, member.axes[-1].name, unroll, hardware.float_lanes)
                draft = spread(draft, member.name, hardware)
        return draft

    def first(self, draft: Draft, chain: _Chain, tile: tuple[Expr | int, ...], block: str, hardware: Hardware) -> Draft:
        """The first product for all rows of a block, columns outermost: a tile of its right factor serves all rows."""
        name, lanes = chain.first.name, hardware.float_lanes
        *outer, row, column = chain.first.axes
        extent = int(column.extent.value)
        wide = [t // lanes for (t,) in clamped_tiles(extent, MAX_VECTORS * lanes, 1) if t % lanes == 0]
        tail = "clamp" if wide else "guard"
        counts = wide or [v for m, v in vector_tiles(extent, lanes, MAX_VECTORS) if m == 1]
        group = DecisionGroup.of(f"{name}.{column.name}", (f"{name}.{column.name}.vectors",), [(v,) for v in counts])
        draft, (vectors,) = draft.decide(group)
        draft = draft.require("registers", lift(tile[0]) * vectors + vectors + 1, hardware.vector_registers)
        i, j = row.name, column.name
        inner = (f"{i}.1", f"{j}.1.0", f"{j}.1.1")
        draft = draft.apply(
            CacheWrite(name, "local"),
            ComputeAt(name, chain.output.name, block),
            Split(name, i, (tile[0],), "exact"),
            Split(name, j, (lift(vectors) * lanes,), tail),
            Split(name, f"{j}.1", (lanes,), "exact"),
            Reorder(name, (*(a.name for a in outer), f"{j}.0", f"{i}.0", *inner)),
            *registers(name, inner),
            ComputeAt(f"{name}.local", name, f"{i}.0"),
        )
        draft = spread(draft, name, hardware)
        return self.accumulated(draft, f"{name}.local", (tile[0], vectors), hardware)


def blocks_of_tiles(extent: int) -> list[tuple[int, int]]:
    """(tiles of a block, rows of a tile) of an axis cut into blocks of rows; the last block begins earlier."""
    return [
        (count, tile)
        for tile in range(1, min(extent, MAX_TILE) + 1)
        for count in range(1, MAX_TILES + 1)
        if count * tile <= extent and ceildiv(extent, count * tile) * count * tile <= extent * MAX_WASTE
    ]


def registers(name: str, loops: tuple[str, ...]) -> list[Step]:
    """All unrolled but the last, which runs over the lanes of a vector."""
    unrolled: list[Step] = [Annotate(name, leaf, "unroll") for leaf in loops[:-1]]
    return [*unrolled, Annotate(name, loops[-1], "vectorize")]
