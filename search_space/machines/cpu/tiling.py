"""Multi-level tiling: a reduction into a tile of registers, its epilogue fused, its constants packed.

The structure is Ansor's SSRSRS with the innermost spatial level held in registers: an output tile of (rows x vectors)
is accumulated over the whole reduction, then written through the epilogue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from search_space.hardware import Hardware
from search_space.ir.expr import Expr, dtype_bytes, lift, product, var, variables, walk
from search_space.machines.shared.instructions import matching_intrinsic, packable
from search_space.schedule.intrinsics import TensorIntrin
from search_space.schedule.state import Axis, Stage
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
from search_space.sketch.base import LIBRARY, Draft, SketchRule
from search_space.sketch.reads import ends_in, same_places
from search_space.sketch.tables import DecisionGroup, clamped_tiles, reduce_tiles, vector_tiles

MAX_TILE = 28
MAX_VECTORS = 8
MAX_UNROLL = 400
MAX_REDUCE_UNROLL = 16
PREFETCH_BYTES = 4096
"""How far ahead packed constants are fetched: the processor's own prefetching stops at each page of 4 KiB."""


@dataclass(frozen=True)
class _Tile:
    """Loops and register-tile factors the rule has made.

    Attributes:
        parallel, serial: outer loops of the output; inner: its register-tile loops, outermost first.
        factors: register-tile size by axis (vectors, for the vector axis).
    """

    parallel: tuple[str, ...]
    serial: tuple[str, ...]
    inner: tuple[str, ...]
    factors: dict[str, Expr | int]

    @property
    def vectors(self) -> Expr | int:
        """Vectors along the last axis."""
        return list(self.factors.values())[-1]


def vector_axis(stage: Stage) -> bool:
    """Whether the last spatial axis runs along the last dimension of something read (so that loads are vectors)."""
    if not stage.axes:
        return False
    last = stage.axes[-1].name
    reads = [n for n in walk(stage.body) if n.op == "load" and len(n.args) > 1]
    return any(last in variables(n.args[-1]) for n in reads)


class MultiLevelTiling(SketchRule):
    """Tiles a reduction whose last axis can be vectorized, together with an element-wise consumer of its shape."""

    name = "multi_level_tiling"

    def matches(self, draft: Draft, stage: Stage, hardware: Hardware) -> bool:
        if stage.name not in draft.state.outputs and stage.reducer is None:
            return False
        producer = self.reduction(draft, stage)
        return producer is not None and vector_axis(producer)

    def reduction(self, draft: Draft, stage: Stage) -> Stage | None:
        """The reduction to tile: the output itself, or the one reduction its epilogue reads at its own indices."""
        if stage.reducer is not None:
            return stage if stage.tag != LIBRARY else None
        found = [r for r in draft.producers(stage) if r.reducer is not None and r.tag != LIBRARY]
        if len(found) == 1 and same_places(draft, found[0], stage) and ends_in(draft, found[0], stage):
            return found[0]
        return None

    def apply(self, draft: Draft, stage: Stage, hardware: Hardware) -> list[Draft]:
        producer = self.reduction(draft, stage)
        assert producer is not None
        if producer is stage:
            draft = draft.apply(CacheWrite(stage.name, "local"))
            accumulator = draft.state.stages[draft.state.stages.index(draft.state.stage(stage.name)) - 1].name
        else:
            draft = draft.apply(SetScope(producer.name, "local"))
            accumulator = producer.name
        width = group_width(producer, producer.axes[-1].name)
        draft, tile = self.spatial(draft, stage.name, stage.axes, hardware, width)
        out = []
        reduced = producer.reduce_axes
        intrinsic, along = matching_intrinsic(draft, producer, hardware) or (None, longest(reduced))
        for reduce_order in self.reduce_orders(reduced):
            for order in self.serial_orders(tile):
                done = self.loops(draft, stage.name, tile, order)
                nest = _Reduction(accumulator, reduce_order, intrinsic, along)
                done = self.accumulate(done, stage.name, nest, tile, order, hardware)
                label = f"{'>'.join(order) or 'flat'}/{'>'.join(a.name for a in reduce_order)}"
                out.append(done.variant(label).finish(stage.name, accumulator))
        return out

    # ------------------------------------------------------------------ the output's loops
    def spatial(
        self, draft: Draft, name: str, axes: Sequence[Axis], hardware: Hardware, width: int = 1
    ) -> tuple[Draft, _Tile]:
        """Splits the output's axes; the first long one and the vector axis get a parallel level.

        Args:
            width: neighbours along the last axis that read the same, see `group_width`.
        """
        lanes = hardware.float_lanes
        long = [a for a in axes[:-1] if a.extent.value > 1]
        parallel = [a.name for a in axes[:-1] if a.extent.value == 1]
        serial: list[str] = []
        inner: list[str] = []
        factors: dict[str, Expr | int] = {}
        for i, axis in enumerate(long):
            extent, columns = int(axis.extent.value), (f"{name}.{axis.name}.blocks", f"{name}.{axis.name}.tile")
            levels = 2 if i == 0 else 1
            rows = clamped_tiles(extent, MAX_TILE, levels)
            group = DecisionGroup.of(f"{name}.{axis.name}", columns[-levels:], rows)
            draft, values = draft.decide(group)
            draft = draft.apply(Split(name, axis.name, values, "clamp"))
            if levels == 2:
                parallel.append(f"{axis.name}.0")
            serial.append(f"{axis.name}.{levels - 1}")
            inner.append(f"{axis.name}.{levels}")
            factors[axis.name] = values[-1]
        last = axes[-1]
        tiles = vector_tiles(int(last.extent.value), lanes, MAX_VECTORS)
        if width % lanes and lanes % width:  # which lanes share a group is known where each tile begins with one
            tiles = [row for row in tiles if row[-1] * lanes % width == 0] or tiles
        columns = (f"{name}.{last.name}.blocks", f"{name}.{last.name}.vectors")
        draft, (blocks, vectors) = draft.decide(DecisionGroup.of(f"{name}.{last.name}", columns, tiles))
        draft = draft.apply(Split(name, last.name, (blocks, vectors, lanes), "guard"))
        factors[last.name] = vectors
        parallel.append(f"{last.name}.0")
        serial.append(f"{last.name}.1")
        inner += [f"{last.name}.2", f"{last.name}.3"]
        tile = _Tile(tuple(parallel), tuple(serial), tuple(inner), factors)
        registers = lift(product(factors.values()))
        needed = registers + vectors + 1
        draft = draft.require("registers", needed, hardware.vector_registers)
        return draft, tile

    def serial_orders(self, tile: _Tile) -> list[tuple[str, ...]]:
        """Channels innermost (the input tile is reused at once), or rows innermost (the weights are)."""
        if len(tile.serial) == 1:
            return [tile.serial]
        return [tile.serial, (tile.serial[-1], *tile.serial[:-1])]

    def loops(self, draft: Draft, name: str, tile: _Tile, order: Sequence[str]) -> Draft:
        steps: list[Step] = [Reorder(name, (*tile.parallel, *order, *tile.inner))]
        loop = tile.parallel[0]
        if len(tile.parallel) > 1:
            steps.append(Fuse(name, tile.parallel))
            loop = "_".join(tile.parallel)
        steps.append(Annotate(name, loop, "parallel"))
        steps += [Annotate(name, leaf, "unroll") for leaf in tile.inner[:-1]]
        steps.append(Annotate(name, tile.inner[-1], "vectorize"))
        return draft.apply(*steps)

    # ------------------------------------------------------------------ the accumulators' loops
    def reduce_orders(self, axes: Sequence[Axis]) -> list[tuple[Axis, ...]]:
        """Window axes around the channels, or the long axis outermost."""
        long = longest(axes)
        others = tuple(a for a in axes if a is not long)
        if not others:
            return [(long,)]
        if long.extent.value <= MAX_REDUCE_UNROLL:
            return [(*others, long)]
        return [(*others[:1], long, *others[1:]), (long, *others)]

    def accumulate(
        self, draft: Draft, output: str, nest: _Reduction, tile: _Tile, serial: Sequence[str], hardware: Hardware
    ) -> Draft:
        lanes, name = hardware.float_lanes, nest.stage
        draft = draft.apply(ComputeAt(name, output, serial[-1]))
        outer: list[str] = []
        unrolled: list[str] = []
        factors: dict[str, tuple[Expr | int, ...]] = {}
        for axis in nest.order:
            extent = int(axis.extent.value)
            depth = nest.depth(axis)
            if extent == 1:
                outer.append(axis.name)
                continue
            rows = reduce_tiles(extent // depth, MAX_REDUCE_UNROLL)
            group = DecisionGroup.of(f"{output}.{axis.name}", (f"{output}.{axis.name}.unroll",), rows)
            draft, (factor,) = draft.decide(group)
            tail = "exact" if all((extent // depth) % r[0] == 0 for r in rows) else "peel"
            factors[axis.name] = (factor, depth) if depth > 1 else (factor,)
            draft = draft.apply(Split(name, axis.name, factors[axis.name], tail))
            outer.append(f"{axis.name}.0")
            unrolled.append(f"{axis.name}.1")
        stage = draft.state.stage(name)
        spatial = [a.name for a in stage.axes]
        last = spatial.pop()
        tensor = () if nest.intrinsic is None else (f"{nest.long.name}.2",)
        slid = None if tensor else sliding(stage, nest.order, tile)
        if slid is None or slid not in factors:
            around = (*unrolled, *spatial, f"{last}.0")
        else:
            around = (*(leaf for leaf in unrolled if leaf != f"{slid}.1"), f"{last}.0", *spatial, f"{slid}.1")
            window = lift(product(tile.factors.values())) + 2 * lift(factors[slid][0]) + 1
            draft = draft.require("registers with a window", window, hardware.vector_registers)
        loops = (*outer, *around, f"{last}.1", *tensor)
        draft = draft.apply(Split(name, last, (lanes,), "exact"), Reorder(name, loops))
        draft = draft.apply(*(Annotate(name, leaf, "unroll") for leaf in (*unrolled, *spatial, f"{last}.0")))
        draft = draft.apply(Annotate(name, f"{last}.1", "vectorize"))
        if nest.intrinsic is not None:
            draft = draft.apply(Tensorize(name, f"{last}.1", nest.intrinsic.name))
        body = lift(product(tile.factors.values())) * product(f[0] for f in factors.values())
        draft = draft.require("unrolled operations", body, MAX_UNROLL)
        draft = self.pack_constants(draft, nest, last, factors, lift(tile.vectors) * lanes)
        if nest.long.name in factors and _packed_bytes(draft, name) > hardware.l1_bytes:
            draft = draft.apply(Pragma(name, f"{nest.long.name}.0", "prefetch_bytes", PREFETCH_BYTES))
        parallel = "_".join(tile.parallel)
        anchors = tuple((output, leaf) for leaf in (parallel, serial[0]))
        return _with_anchors(draft, name, anchors if len(serial) > 1 else anchors[:1])

    def pack_constants(
        self, draft: Draft, nest: _Reduction, last: str, factors: dict[str, tuple[Expr | int, ...]], block: Expr
    ) -> Draft:
        """Lays weights out in the order they are read: vector blocks outermost, then the reduction as it is looped."""
        names = [a.name for a in nest.order]
        stage = draft.state.stage(nest.stage)
        for node in walk(stage.body):
            axes = packable(draft, stage, node)
            if axes is None:
                continue
            split = {**factors, last: (block,)}
            parts = [(axes.index(a), 0) for a in axes if a != last and a not in names]
            parts.append((axes.index(last), 0))
            for level in (0, 1):
                parts += [(axes.index(a), level) for a in names if a in axes and level <= len(factors.get(a, ()))]
            parts.append((axes.index(last), 1))
            parts += [(axes.index(a), 2) for a in names if a in axes and len(factors.get(a, ())) > 1]
            packing = tuple(split.get(a, ()) for a in axes)
            draft = draft.apply(Pack(node.args[0], packing, tuple(parts)))
        return draft


def _packed_bytes(draft: Draft, name: str) -> int:
    """Bytes of the constants that a stage reads and that have been packed."""
    sources = [draft.state.input(read) for read in draft.state.stage(name).reads()]
    packed = [s for s in sources if s is not None and s.layout is not None]
    return sum(dtype_bytes(s.dtype) * prod(s.shape) for s in packed)


def group_width(stage: Stage, axis: str) -> int:
    """How many neighbours along an axis read the same, as the outputs of a group of channels do; 1 where none do."""
    divisions = (node for node in walk(stage.body) if node.op == "floordiv" and node.args[0] is var(axis))
    return next((int(node.args[1].value) for node in divisions if node.args[1].is_const), 1)


def sliding(stage: Stage, reduced: Sequence[Axis], tile: _Tile) -> str | None:
    """The reduce axis along which a window of vectors slides over the tile; None where there is none.

    A vector of data that is put in order in a register, as lanes of several groups of channels are, or that each
    lane has for itself, serves all positions of the window that reach it, if these are the innermost loop.
    """
    *rows, last = tile.factors
    axes = {a.name for a in reduced}
    for node in walk(stage.body):
        if rows and node.op == "load" and any(last in variables(index) for index in node.args[1:]):
            for index in node.args[1:]:
                found = sorted(variables(index) & axes)
                if rows[-1] in variables(index) and len(found) == 1:
                    return found[0]
    return None


def longest(axes: Sequence[Axis]) -> Axis:
    return max(axes, key=lambda a: int(a.extent.value))


@dataclass(frozen=True)
class _Reduction:
    """The accumulating stage, its reduce axes outermost first, and the instruction that its innermost loops become.

    The instruction runs over steps of the axis `long`, which is the longest where there is no instruction.
    """

    stage: str
    order: tuple[Axis, ...]
    intrinsic: TensorIntrin | None
    long: Axis

    def depth(self, axis: Axis) -> int:
        """Steps of `axis` one instruction takes."""
        return self.intrinsic.extents[1] if self.intrinsic is not None and axis is self.long else 1


def _with_anchors(draft: Draft, name: str, anchors: tuple[tuple[str, str], ...]) -> Draft:
    return replace(draft, anchors={**draft.anchors, name: anchors})
