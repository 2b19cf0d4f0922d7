"""Machines whose memories are filled by hand: operands are copied in, products run as one instruction, results go out.

The structure is that of TVM's templates for VTA: a tile of the output is accumulated on chip over the whole reduction,
whose operands arrive a part at a time; element-wise work follows in the accumulators. Virtual threads, each with its
own buffers, let one part arrive while another is computed (latency hiding).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from search_space.hardware import Hardware
from search_space.intrinsics import available
from search_space.ir.expr import Expr, lift, walk
from search_space.schedule.builder import Loop
from search_space.schedule.intrinsics import TensorIntrin
from search_space.schedule.patterns import expression_pattern
from search_space.schedule.state import Axis, Stage
from search_space.sketch.base import Draft, SketchRule
from search_space.sketch.reads import same_places
from search_space.sketch.tables import MAX_WASTE, ceildiv, divisors

THREADS = 2
"""Greatest number of virtual threads: two are enough for one part to arrive while another is computed."""
OPERAND_SCOPES = ("input", "weight")
"""Memories of the first and the second operand of a product."""


@dataclass(frozen=True)
class _Tiles:
    """Loops of the output, by axis: over tiles, virtual threads, and within a tile."""

    outer: tuple[Loop, ...]
    threads: tuple[Loop, ...]
    within: tuple[Loop, ...]

    @property
    def orders(self) -> list[tuple[Loop, ...]]:
        """The loops over tiles as they are, and the first one innermost."""
        first, rest = self.outer[:1], self.outer[1:]
        return [self.outer, (*rest, *first)] if rest else [self.outer]


class ExplicitMemory(SketchRule):
    """A rule that tiles a sum of products for an instruction of the machine that works on its own memories."""

    name = "explicit_memory"

    def matches(self, draft: Draft, stage: Stage, hardware: Hardware) -> bool:
        return True  # such machines have no other way to compute

    def product(self, draft: Draft, stage: Stage, hardware: Hardware) -> tuple[Stage, TensorIntrin] | None:
        """Finds the reduction that ends in `stage`, and the instruction that computes its innermost axes."""
        if stage.reducer is not None:
            return None
        reductions = [p for p in draft.producers(stage) if p.reducer is not None]
        if len(reductions) != 1 or not same_places(draft, reductions[0], stage):
            return None
        for intrinsic in available(hardware):
            loops = _innermost(reductions[0], intrinsic)
            if loops is not None and expression_pattern(reductions[0].body, loops) == intrinsic.pattern:
                return reductions[0], intrinsic
        return None

    def apply(self, draft: Draft, stage: Stage, hardware: Hardware) -> list[Draft]:
        matched = self.product(draft, stage, hardware)
        if matched is None:
            return []
        producer, intrinsic = matched
        tiled = stage.axes[: len(stage.axes) - len(intrinsic.op.axis)]
        draft, tiles = self.output(draft, stage.name, tiled)
        out: list[Draft] = []
        for outer in tiles.orders:
            for resident in (False, True)[: 2 if outer else 1]:
                done = self.order(draft, stage.name, tiles, outer)
                place = tiles.threads[-1] if tiles.threads else done.stage(stage.name).spatial[0]
                done, first = self.accumulate(done, (stage.name, place), producer, intrinsic)
                done, used = self.operands(done, stage, producer, first, outer, resident)
                label = f"{'>'.join(outer) or 'whole'}{'/resident' if resident else ''}"
                out.append(done.variant(label).finish(stage.name, producer.name, *used))
        return out

    # ------------------------------------------------------------------ the output
    def output(self, draft: Draft, name: str, axes: Sequence[Axis]) -> tuple[Draft, _Tiles]:
        """Splits the output's axes into tiles, virtual threads and a tile."""
        counts: list[Expr | int] = []
        loops: list[tuple[Loop, ...]] = []
        long = [a for a in axes if a.extent.value > 1]
        for axis in long:
            rows = tile_sizes(int(axis.extent.value), THREADS if axis in long[:2] else 1)
            draft, factors = draft.choose_row(f"{name}.{axis.name}", ("threads", "tile"), rows)
            counts.append(factors[0])
            draft, split = draft.split(name, axis.name, factors, "clamp")
            loops.append(split)
        if len(counts) > 1:
            draft = draft.require("virtual threads", lift(counts[0]) * counts[1], THREADS)
        outer, threads, within = (tuple(split[level] for split in loops) for level in range(3))
        return draft, _Tiles(outer, threads, within)

    def order(self, draft: Draft, name: str, tiles: _Tiles, outer: Sequence[Loop]) -> Draft:
        loops = (*outer, *tiles.threads, *tiles.within)
        draft = draft.reorder(name, *loops) if len(loops) > 1 else draft
        return draft.annotate(name, "vthread", *tiles.threads[:2])

    # ------------------------------------------------------------------ the sum of products
    def accumulate(
        self, draft: Draft, anchor: tuple[str, Loop], producer: Stage, intrinsic: TensorIntrin
    ) -> tuple[Draft, Loop]:
        """Accumulates on chip, inside the virtual threads; returns the loop over parts of the reduction too.

        Args:
            anchor: stage of the output, and its loop inside which the sum is computed.
        """
        name = producer.name
        draft = draft.set_scope(name, "accumulator").compute_at(name, *anchor)
        loops = _innermost(producer, intrinsic) or []
        parts, *others = (a for a in producer.reduce_axes if a.name not in loops)
        spatial = [a for a in producer.spatial if a not in loops]
        rows = [(d,) for d in divisors(int(parts.extent.value))]
        draft, factors = draft.choose_row(f"{anchor[0]}.{parts.name}", ("tile",), rows)
        draft, (first, within) = draft.split(name, parts.name, factors)
        # the reduction outside: successive products add to different tiles, which suits pipelines
        draft = draft.reorder(name, first, within, *(a.name for a in others), *spatial, *loops)
        return draft.tensorize(name, loops[0], intrinsic.name), first

    def operands(
        self, draft: Draft, stage: Stage, producer: Stage, first: Loop, outer: Sequence[Loop], resident: bool
    ) -> tuple[Draft, list[str]]:
        """Copies operands in; the few numbers that the end of the stage reads stay for the outermost loop's iteration.

        Args:
            first: loop over parts of the reduction, at which operands arrive.
            outer: loops over tiles.
            resident: constant operands stay, too.
        """
        used: list[str] = []
        loads = [n for n in walk(producer.body) if n.op == "load"]
        for scope, read in zip(OPERAND_SCOPES, dict.fromkeys(str(n.args[0]) for n in loads), strict=True):
            source = draft.state.input(read)
            draft, copy = draft.cache_read(read, scope, producer.name)
            stays = source is not None and source.constant and resident and outer
            draft = draft.compute_at(copy, *((stage.name, outer[0]) if stays else (producer.name, first)))
            if source is None:  # padding, or another stage that is computed on the way in
                draft = draft.compute_inline(read)
                used.append(read)
            used.append(copy)
        place = draft.stage(producer.name).attach
        at = (stage.name, outer[0]) if outer else (place.stage, place.leaf)
        for read in draft.stage(stage.name).reads():
            if draft.state.input(read) is not None:
                draft, copy = draft.cache_read(read, "accumulator", stage.name)
                draft = draft.compute_at(copy, *at)
                used.append(copy)
        return draft, used


def tile_sizes(extent: int, threads: int) -> list[tuple[int, int]]:
    """Lists (threads, tile) of an axis with a clamped last tile, if little of it is computed twice."""
    rows = []
    for count in range(1, threads + 1):
        for tile in range(1, extent // count + 1):
            if ceildiv(extent, tile * count) * tile * count <= extent * MAX_WASTE:
                rows.append((count, tile))
    return rows


def _innermost(stage: Stage, intrinsic: TensorIntrin) -> list[str] | None:
    """Returns the last axes and the last reduce axis, if they are as long as the instruction's loops."""
    spatial, reduced = len(intrinsic.op.axis), len(intrinsic.op.reduce_axis)
    axes = [*stage.axes[-spatial:], *stage.reduce_axes[-reduced:]]
    return [a.name for a in axes] if tuple(int(a.extent.value) for a in axes) == intrinsic.extents else None
