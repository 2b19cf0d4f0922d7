"""Multi-level tiling: a reduction into a tile of registers, its epilogue fused, its constants packed.

The structure is Ansor's SSRSRS with the innermost spatial level held in registers: an output tile of (rows x vectors)
is accumulated over the whole reduction, then written through the epilogue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from search_space.hardware import Hardware
from search_space.intrinsics import LANES_APART
from search_space.ir.expr import SHIFTS, Expr, dtype_bytes, lift, product, variables, walk
from search_space.machines.shared.groups import MAX_VECTORS, group_tiles, group_width
from search_space.machines.shared.instructions import EACH, Way, interleavable, list_ways, packable
from search_space.schedule.builder import Loop
from search_space.schedule.intrinsics import TensorIntrin
from search_space.schedule.state import Axis, Stage
from search_space.sketch.base import Draft, SketchRule
from search_space.sketch.reads import ends_in, reads_rows, same_places
from search_space.sketch.tables import clamped_tiles, reduce_tiles, vector_tiles
from search_space.tags import Tag

MAX_TILE = 28
"""Greatest number of elements of a register tile along an axis without vectors."""
MAX_UNROLL = 400
"""Greatest number of operations in one unrolled body: longer loops are read from memory, more slowly."""
MAX_REDUCE_UNROLL = 16
"""Greatest number of steps of a reduction that are unrolled."""
DOT_OPERATIONS = 3
"""Operations that a dot of bytes counts for, those that extract its bytes from words included."""
PREFETCH_BYTES = 4096
"""Distance at which packed constants are prefetched: the hardware prefetcher stops at each page of 4 KiB."""


@dataclass(frozen=True)
class _Tile:
    """Loops of the output and register-tile factors.

    Attributes:
        parallel: outer loops, run side by side as one.
        serial: loops over register tiles inside of them; inner: those of a register tile; both outermost first.
        axes: axes of the output that were split, or the loop that some of them were fused into, outermost first.
        factors: register-tile size by axis (vectors, for the vector axis).
    """

    parallel: tuple[Loop, ...]
    serial: tuple[Loop, ...]
    inner: tuple[Loop, ...]
    axes: tuple[Loop, ...]
    factors: dict[str, Expr | int]

    @property
    def vectors(self) -> Expr | int:
        """Number of vectors along the last axis."""
        return list(self.factors.values())[-1]


def vector_axis(stage: Stage) -> bool:
    """Tells whether the last spatial axis runs along the last dimension of a read tensor (so that loads are vectors).

    An axis along words of a tensor counts, since instructions take a word as one element.
    """
    if not stage.axes or stage.tag == Tag.PAIRS:
        return bool(stage.axes)
    last = stage.axes[-1].name
    reads = [n for n in walk(stage.body) if n.op == "load" and len(n.args) > 1]
    return any(last in variables(n.args[-1]) for n in reads)


class MultiLevelTiling(SketchRule):
    """A rule that tiles a reduction with a vectorisable last axis, and an element-wise consumer of its shape."""

    name = "multi_level_tiling"

    def matches(self, draft: Draft, stage: Stage, hardware: Hardware) -> bool:
        if stage.name not in draft.state.outputs and stage.reducer is None:
            return False
        producer = self.reduction(draft, stage)
        return producer is not None and vector_axis(producer)

    def reduction(self, draft: Draft, stage: Stage) -> Stage | None:
        """Finds the reduction to tile: the output, or the one reduction that its epilogue reads in its own order."""
        if stage.reducer is not None:
            return stage if stage.tag != Tag.LIBRARY else None
        sums = [r for r in draft.producers(stage) if r.reducer is not None and r.tag != Tag.LIBRARY]
        if len(sums) != 1 or not ends_in(draft, sums[0], stage):
            return None
        return sums[0] if same_places(draft, sums[0], stage) or reads_rows(draft, sums[0], stage) else None

    def apply(self, draft: Draft, stage: Stage, hardware: Hardware) -> list[Draft]:
        producer = self.reduction(draft, stage)
        assert producer is not None
        return [done for way in list_ways(draft, producer, hardware) for done in self.tile(way, stage, hardware)]

    def tile(self, way: Way, stage: Stage, hardware: Hardware) -> list[Draft]:
        """Lists the tilings of a reduction whose products are computed in one way."""
        draft = way.draft
        producer = self.reduction(draft, draft.stage(stage.name))
        assert producer is not None
        # Before the output is split: the sums' own loops are derived from its axes as they are.
        draft, accumulator = draft.sums_in("local", producer.name, stage.name)
        reduced = producer.reduce_axes
        intrinsic, along = way.intrinsic or (None, longest(reduced))
        by_group = intrinsic is not None and (group_width(producer) > 1 or intrinsic in LANES_APART)
        tiles = group_tiles(producer, hardware.float_lanes) if by_group else whole_tiles(producer, hardware.float_lanes)
        # A register of pairs becomes two of float32.
        per_vector = 1 if intrinsic is None else intrinsic.steps
        tail = "exact" if by_group else "guard"
        draft, axes = fuse_rows(draft, stage, producer)
        draft, tile = self.spatial(draft, stage.name, axes, hardware, tiles, tail, per_vector)
        out = []
        # Orders of loops are other trees, and so sketches; each number is a decision in each of them.
        for reduce_order in self.reduce_orders(producer):
            for parallel, order in self.spatial_orders(draft, producer, tile, hardware):
                nest = _Reduction(accumulator, reduce_order, intrinsic, along, shifting(producer))
                done = draft.reorder(stage.name, *parallel, *order, *tile.inner)
                done, block = done.fuse(stage.name, parallel)
                done = done.parallel(stage.name, block).in_registers(stage.name, tile.inner)
                done = self.accumulate(done, stage.name, nest, tile, (block, *order), hardware)
                label = f"{'>'.join(order) or 'flat'}/{'>'.join(a.name for a in reduce_order)}"
                done = done.variant(label if parallel == tile.parallel else f"{block}/{label}").finish(
                    stage.name, accumulator
                )
                out += [done] if intrinsic is None else self.list_interleavings(done, nest, hardware)
        return out

    # ------------------------------------------------------------------ the output's loops
    def spatial(
        self,
        draft: Draft,
        name: str,
        axes: Sequence[Axis],
        hardware: Hardware,
        tiles: Sequence[tuple[int, int]],
        tail: str,
        per_vector: int = 1,
    ) -> tuple[Draft, _Tile]:
        """Splits the output's axes; the first long one and the vector axis get a parallel level.

        Args:
            axes: axes of the output; one over parts of a reduction is parallel as it is.
            tiles: choices of (blocks, vectors) for the last axis.
            tail: tail of the last axis: if an instruction reads by group, each lane must exist.
            per_vector: registers that a vector of the right factor takes.
        """
        lanes, part = hardware.float_lanes, draft.parts.get(name)
        long = [a for a in axes[:-1] if a.extent.value > 1 and a.name != part]
        parallel = [a.name for a in axes[:-1] if a not in long]
        serial: list[Loop] = []
        inner: list[Loop] = []
        factors: dict[str, Expr | int] = {}
        for i, axis in enumerate(long):
            columns = ("blocks", "tile")[-2 if i == 0 else -1 :]
            rows = clamped_tiles(int(axis.extent.value), MAX_TILE, len(columns))
            draft, sizes = draft.choose_row(f"{name}.{axis.name}", columns, rows)
            draft, (*outer, block, tile) = draft.split(name, axis.name, sizes, "clamp")
            parallel += outer
            serial.append(block)
            inner.append(tile)
            factors[axis.name] = sizes[-1]
        last = axes[-1]
        draft, (blocks, vectors) = draft.choose_row(f"{name}.{last.name}", ("blocks", "vectors"), tiles)
        draft, (first, block, *vector) = draft.split(name, last.name, (blocks, vectors, lanes), tail)
        factors[last.name] = vectors
        found = _Tile((*parallel, first), (*serial, block), (*inner, *vector), tuple(a.name for a in axes), factors)
        registers = lift(product(factors.values()))
        # Accumulators, a vector of each of the right factor's, and one number of the left one in every lane.
        return draft.require("registers", registers + lift(vectors) * per_vector + 1, hardware.vector_registers), found

    def spatial_orders(
        self, draft: Draft, producer: Stage, tile: _Tile, hardware: Hardware
    ) -> list[tuple[tuple[Loop, ...], tuple[Loop, ...]]]:
        """Lists orders of the parallel loops and of those inside: rows outermost, or vectors if that may be faster.

        If the rows' reads stay in a cache, one block of rows in each iteration of the parallel loop has the same effect
        as vectors outermost; and likewise for the vectors' reads. So both orders exist only if neither fits.
        """
        orders = [(tile.parallel, order) for order in self.serial_orders(tile)]
        streamed = sum(size > hardware.l2_bytes for size in read_bytes(draft, producer)) > 1
        if len(orders) > 1 and streamed and producer.name not in draft.parts:
            orders.append(((tile.parallel[-1], *tile.parallel[:-1]), orders[-1][1]))
        return orders

    def serial_orders(self, tile: _Tile) -> list[tuple[Loop, ...]]:
        """Lists orders with channels innermost (reuses the input tile) or rows innermost (reuses the weights)."""
        if len(tile.serial) == 1:
            return [tile.serial]
        return [tile.serial, (tile.serial[-1], *tile.serial[:-1])]

    # ------------------------------------------------------------------ the accumulators' loops
    def reduce_orders(self, stage: Stage) -> list[tuple[Axis, ...]]:
        """Lists orders with window axes around the channels, or the long axis outermost; they agree for a 1x1 window.

        Weights that share a scale with their neighbours are read in the order of the definition, group by group.
        """
        axes = stage.reduce_axes
        if in_scaled_groups(stage):
            return [tuple(sorted(axes, key=lambda a: a.extent.value != 1))]
        long = longest(axes)
        others = tuple(sorted((a for a in axes if a is not long), key=lambda a: a.extent.value == 1))
        if not others or others[0].extent.value == 1:
            return [(*others, long)]
        # Short channels can be unrolled completely: then no loop over them remains that could go outside.
        if long.extent.value <= MAX_REDUCE_UNROLL:
            return [(*others, long)]
        return [(*others[:1], long, *others[1:]), (long, *others)]

    def accumulate(
        self, draft: Draft, output: str, nest: _Reduction, tile: _Tile, around: Sequence[Loop], hardware: Hardware
    ) -> Draft:
        """Makes the loops of the sum, inside those of the output.

        Args:
            around: the output's loops outside of a register tile: the parallel one, then those over tiles.
        """
        lanes, name = hardware.float_lanes, nest.stage
        draft = draft.compute_at(name, output, around[-1])
        outer: list[Loop] = []
        inner: dict[str, tuple[Loop, ...]] = {}
        factors: dict[str, tuple[Expr | int, ...]] = {}
        for axis in nest.order:
            extent, depth = int(axis.extent.value), nest.depth(axis)
            if extent == 1:
                outer.append(axis.name)
                continue
            # The shift of bits is an immediate operand of the instruction.
            rows = [(extent,)] if axis.name in nest.shifting else reduce_tiles(extent // depth, MAX_REDUCE_UNROLL)
            draft, (factor,) = draft.choose_row(f"{output}.{axis.name}", ("unroll",), rows)
            tail = "exact" if all((extent // depth) % r[0] == 0 for r in rows) else "peel"
            factors[axis.name] = (factor, depth) if depth > 1 else (factor,)
            if tail == "peel" and depth > 1:  # the unit is one instruction's elements: as many instructions as remain
                draft, (taken, within_one) = draft.split(name, axis.name, (depth,))
                draft, (steps, *within) = draft.split(name, taken, (factor,), tail)
                within.append(within_one)
            else:
                draft, (steps, *within) = draft.split(name, axis.name, factors[axis.name], tail)
            outer.append(steps)
            inner[axis.name] = (steps, *within)
        *spatial, last = draft.stage(name).spatial
        draft, (vectors, vector) = draft.split(name, last, (lanes,))
        unrolled = [loops[1] for loops in inner.values()]
        tensor = () if nest.intrinsic is None else inner[nest.long.name][2:]
        slid = sliding(draft.stage(name), nest.order, self.list_tiled_axes(draft, name, tile))
        if nest.intrinsic is not None and nest.intrinsic not in LANES_APART:
            slid = None  # nothing is permuted: the instruction itself reads the operand that all lanes share
        # Tile innermost: each weight is loaded once for all rows. Under a window the positions are innermost instead,
        # so that a permuted vector serves all positions that reach it.
        if slid is None or slid not in inner:
            body = (*unrolled, *spatial, vectors)
        else:
            window = inner[slid][1]
            body = (*(loop for loop in unrolled if loop != window), vectors, *spatial, window)
            needed = lift(product(tile.factors.values())) + 2 * lift(factors[slid][0]) + 1
            draft = draft.require("registers with a window", needed, hardware.vector_registers)
        draft = draft.reorder(name, *outer, *body, vector, *tensor)
        draft = draft.unroll(name, *unrolled, *spatial, vectors).vectorize(name, vector)
        if nest.intrinsic is not None:
            draft = draft.tensorize(name, vector, nest.intrinsic.name)
        dots = [node for node in walk(draft.stage(name).body) if node.op == "bytedot"]
        operations = lift(product(tile.factors.values())) * product(f[0] for f in factors.values())
        if dots:
            operations *= DOT_OPERATIONS * len(dots)
            # Bytes extracted from words of the weights stay in registers for all rows.
            kept = lift(product(tile.factors.values())) + lift(tile.vectors) * len({node.args[0] for node in dots})
            draft = draft.require("registers with words", kept, hardware.vector_registers)
        if nest.intrinsic is not None:
            operations *= nest.intrinsic.steps
        draft = draft.require("unrolled operations", operations, MAX_UNROLL)
        draft = self.pack_constants(draft, nest, last, factors, lift(tile.vectors) * lanes)
        for read in draft.producers(draft.stage(name)):
            if read.tag == Tag.PANEL:
                draft = self.pack_panel(draft, read, lift(tile.vectors) * lanes)
        if nest.long.name in inner and _packed_bytes(draft, name) > hardware.l1_bytes:
            draft = draft.pragma(name, inner[nest.long.name][0], "prefetch_bytes", PREFETCH_BYTES)
        # Loops where padding and copies may be computed for a tile, see `pad`.
        anchors = tuple((output, loop) for loop in around[: 2 if len(tile.serial) > 1 else 1])
        return replace(draft, anchors={**draft.anchors, name: anchors})

    def list_tiled_axes(self, draft: Draft, name: str, tile: _Tile) -> list[str]:
        """Lists the sum's axes that a register tile covers, outermost first; an epilogue names its axes differently."""
        pairs = zip(tile.axes, draft.stage(name).axes, strict=True)
        return [own.name for tiled, own in pairs if tiled in tile.factors]

    def pack_constants(
        self, draft: Draft, nest: _Reduction, last: str, factors: dict[str, tuple[Expr | int, ...]], block: Expr
    ) -> Draft:
        """Lays weights out in the order they are read: vector blocks outermost, then the reduction as it is looped."""
        names = [a.name for a in nest.order]
        stage = draft.stage(nest.stage)
        for node in walk(stage.body):
            axes = packable(draft, stage, node)
            if axes is None:
                continue
            split = {**factors, last: (block,)}
            each = [(place, 0) for place, a in enumerate(axes) if a.startswith(EACH)]
            parts = [(axes.index(a), 0) for a in axes if a != last and a not in names and not a.startswith(EACH)]
            parts.append((axes.index(last), 0))
            for level in (0, 1):
                parts += [(axes.index(a), level) for a in names if a in axes and level <= len(factors.get(a, ()))]
            parts += [*each, (axes.index(last), 1)]
            parts += [(axes.index(a), 2) for a in names if a in axes and len(factors.get(a, ())) > 1]
            draft = draft.pack(node.args[0], [split.get(a, ()) for a in axes], parts)
        return draft

    def pack_panel(self, draft: Draft, panel: Stage, block: Expr) -> Draft:
        """Packs the constants that a panel is computed from in its order: blocks of columns one after another."""
        for node in walk(panel.body):
            axes = packable(draft, panel, node)
            if axes is not None:
                last = axes.index(panel.axes[-1].name)
                parts = [(last, 0), *((place, 0) for place in range(len(axes)) if place != last), (last, 1)]
                draft = draft.pack(
                    node.args[0], [(block,) if place == last else () for place in range(len(axes))], parts
                )
        return draft

    def list_interleavings(self, draft: Draft, nest: _Reduction, hardware: Hardware) -> list[Draft]:
        """Lists variants by the loop at which a variable operand is copied in the instruction's order."""
        stage, along = draft.stage(nest.stage), nest.long.name
        last = stage.axes[-1].name
        for node in walk(stage.body):
            if node.op == "load" and interleavable(draft, stage, node, along):
                made, copy = interleave_operand(draft, stage, node, (along, last), nest.depth(nest.long))
                made = in_vectors(made, copy, nest.depth(nest.long) * hardware.float_lanes)
                places = draft.anchors[nest.stage]
                return [made.compute_at(copy, *at).finish(copy).variant(f"pairs_at_{at[1]}") for at in places]
        return [draft]


def interleave_operand(draft: Draft, stage: Stage, node: Expr, axes: tuple[str, str], depth: int) -> tuple[Draft, str]:
    """Copies the operand of a load of `stage` in an instruction's order; returns the draft and the copy's stage.

    Args:
        axes: axis whose groups of `depth` neighbours become contiguous, and axis that is contiguous outside of them.
    """
    along, last = ([str(i.args[0]) for i in node.args[1:]].index(axis) for axis in axes)
    draft, copy = draft.cache_read(node.args[0], "global", stage.name)
    draft = draft.interleave(copy, draft.stage(copy).spatial[along], depth)
    count = len(draft.stage(copy).axes)
    if last != count - 2:
        draft = draft.relayout(copy, [*(d for d in range(count - 1) if d != last), last, count - 1])
    return draft, copy


def in_vectors(draft: Draft, copy: str, lanes: int, tail: str = "exact") -> Draft:
    """Vectorises a copy's last two dimensions, `lanes` elements at a time."""
    stage = draft.stage(copy)
    if stage.leaves != stage.spatial:  # its dimensions in memory have another order than its loops
        draft = draft.reorder(copy, *stage.spatial)
    draft, row = draft.fuse(copy, stage.spatial[-2:])
    draft, (_, lane) = draft.split(copy, row, (lanes,), tail)
    return draft.vectorize(copy, lane)


def _packed_bytes(draft: Draft, name: str) -> int:
    """Counts the bytes of the packed constants that a stage reads."""
    sources = [draft.state.input(read) for read in draft.stage(name).reads()]
    packed = [s for s in sources if s is not None and s.layout is not None]
    return sum(dtype_bytes(s.dtype) * prod(s.shape) for s in packed)


def fuse_rows(draft: Draft, output: Stage, sums: Stage) -> tuple[Draft, tuple[Axis, ...]]:
    """Fuses the output's leading axes if they are one axis of the sums; returns the draft and the axes to split."""
    if len(output.axes) == len(sums.axes):
        return draft, output.axes
    draft, rows = draft.fuse(output.name, [axis.name for axis in output.axes[:-1]])
    return draft, (replace(sums.axes[0], name=rows), output.axes[-1])


def read_bytes(draft: Draft, stage: Stage) -> list[int]:
    """Counts the bytes of each tensor that a stage reads."""
    sources = [draft.state.input(name) or draft.state.stage(name) for name in stage.reads()]
    return [dtype_bytes(source.dtype) * prod(int(lift(n).value) for n in source.shape) for source in sources]


def whole_tiles(stage: Stage, lanes: int) -> list[tuple[int, int]]:
    """Lists tiles (blocks, vectors) of the last axis; each begins with a group of channels if possible."""
    tiles, width = vector_tiles(int(stage.axes[-1].extent.value), lanes, MAX_VECTORS), group_width(stage)
    if width % lanes and lanes % width:  # the lanes that share a group are known if each tile begins with a group
        tiles = [row for row in tiles if row[-1] * lanes % width == 0] or tiles
    return tiles


def sliding(stage: Stage, sum_axes: Sequence[Axis], tile_axes: Sequence[str]) -> str | None:
    """Finds the reduce axis along which a window of vectors slides over the tile; None without one.

    The vector of data may be permuted in a register, as for lanes of several groups of channels, or differ in each
    lane. It serves all positions of the window that reach it, if these are the innermost loop.

    Args:
        stage: the sum.
        sum_axes: axes that are summed over.
        tile_axes: axes along which a register tile holds several elements, the vector axis last.
    """
    *rows, last = tile_axes
    axes = {a.name for a in sum_axes}
    for node in walk(stage.body):
        if rows and node.op == "load" and any(last in variables(index) for index in node.args[1:]):
            for index in node.args[1:]:
                found = sorted(variables(index) & axes)
                if rows[-1] in variables(index) and len(found) == 1:
                    return found[0]
    return None


def in_scaled_groups(stage: Stage) -> bool:
    """Tells whether weights have a common factor with their neighbours along some of the axes summed over."""
    reduced, last = {a.name for a in stage.reduce_axes}, stage.axes[-1].name
    reads = [{v for i in node.args[1:] for v in variables(i)} for node in walk(stage.body) if node.op == "load"]
    return len({frozenset(names & reduced) for names in reads if last in names}) > 1


def shifting(stage: Stage) -> frozenset[str]:
    """Returns reduce axes that determine the shift of bits: words then hold several numbers each."""
    amounts = [node.args[1] for node in walk(stage.body) if node.op in SHIFTS]
    return frozenset(variable for amount in amounts for variable in variables(amount))


def longest(axes: Sequence[Axis]) -> Axis:
    return max(axes, key=lambda a: int(a.extent.value))


@dataclass(frozen=True)
class _Reduction:
    """The accumulating stage, its reduce axes outermost first, and the instruction that its innermost loops become.

    The instruction runs over steps of the axis `long`, which is the longest if there is no instruction. `shifting` are
    axes that select a number within a word.
    """

    stage: str
    order: tuple[Axis, ...]
    intrinsic: TensorIntrin | None
    long: Axis
    shifting: frozenset[str] = frozenset()

    def depth(self, axis: Axis) -> int:
        """Returns the steps of `axis` that one instruction takes."""
        return self.intrinsic.extents[1] if self.intrinsic is not None and axis is self.long else 1
