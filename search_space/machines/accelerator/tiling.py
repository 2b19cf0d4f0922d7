"""Machines whose memories are filled by hand: operands are copied in, products run as one instruction, results go out.

The structure is that of TVM's templates for VTA: a tile of the output is accumulated on chip over the whole reduction,
whose operands arrive a part at a time; element-wise work follows in the accumulators, and virtual threads, each with
buffers of its own, let one part arrive while another is computed (latency hiding).
"""

from __future__ import annotations

from collections.abc import Sequence

from search_space.hardware import Hardware
from search_space.intrinsics import available
from search_space.ir.expr import Expr, lift, walk
from search_space.lower.tensorize import shape_of
from search_space.schedule.intrinsics import TensorIntrin
from search_space.schedule.state import Axis, Stage
from search_space.schedule.steps import (
    Annotate,
    CacheRead,
    ComputeAt,
    ComputeInline,
    Reorder,
    SetScope,
    Split,
    Tensorize,
)
from search_space.sketch.base import Draft, SketchRule
from search_space.sketch.reads import same_places
from search_space.sketch.tables import MAX_WASTE, DecisionGroup, ceildiv, divisors

THREADS = 2
"""Virtual threads at most: two are enough for one part to arrive while another is computed."""
OPERAND_SCOPES = ("input", "weight")
"""Memories of the first and the second operand of a product."""


class ExplicitMemory(SketchRule):
    """Tiles a sum of products that an instruction of the machine computes, where it works on memories of its own."""

    name = "explicit_memory"

    def matches(self, draft: Draft, stage: Stage, hardware: Hardware) -> bool:
        return True  # such machines have no other way to compute

    def product(self, draft: Draft, stage: Stage, hardware: Hardware) -> tuple[Stage, TensorIntrin] | None:
        """The reduction whose end `stage` is, and the instruction that computes its innermost axes."""
        if stage.reducer is not None:
            return None
        found = [p for p in draft.producers(stage) if p.reducer is not None]
        if len(found) != 1 or not same_places(draft, found[0], stage):
            return None
        for intrinsic in available(hardware):
            loops = _innermost(found[0], intrinsic)
            if loops is not None and shape_of(found[0].body, loops) == intrinsic.pattern:
                return found[0], intrinsic
        return None

    def apply(self, draft: Draft, stage: Stage, hardware: Hardware) -> list[Draft]:
        matched = self.product(draft, stage, hardware)
        if matched is None:
            return []
        producer, intrinsic = matched
        tiled = stage.axes[: len(stage.axes) - len(intrinsic.op.axis)]
        draft, order = self.output(draft, stage.name, tiled)
        out: list[Draft] = []
        for outer in order:
            for resident in (False, True)[: 2 if outer else 1]:
                done = self.order(draft, stage.name, tiled, outer)
                loops = [a.name for a in tiled if a.extent.value > 1]
                done, first = self.accumulate(done, stage.name, producer, intrinsic, loops)
                done, used = self.operands(done, stage, producer, first, outer, resident)
                label = f"{'>'.join(outer) or 'whole'}{'/resident' if resident else ''}"
                out.append(done.variant(label).finish(stage.name, producer.name, *used))
        return out

    # ------------------------------------------------------------------ the output
    def output(self, draft: Draft, name: str, axes: Sequence[Axis]) -> tuple[Draft, list[tuple[str, ...]]]:
        """Splits the output's axes into tiles, virtual threads and a tile; the orders of the outermost loops."""
        threads: list[Expr | int] = []
        outer: list[str] = []
        long = [a for a in axes if a.extent.value > 1]
        for axis in long:
            rows = tiles(int(axis.extent.value), THREADS if axis in long[:2] else 1)
            columns = (f"{name}.{axis.name}.threads", f"{name}.{axis.name}.tile")
            draft, factors = draft.decide(DecisionGroup.of(f"{name}.{axis.name}", columns, rows))
            threads.append(factors[0])
            draft = draft.apply(Split(name, axis.name, factors, "clamp"))
            outer.append(f"{axis.name}.0")
        if len(threads) > 1:
            draft = draft.require("virtual threads", lift(threads[0]) * threads[1], THREADS)
        rest = tuple(outer[1:])
        orders = [tuple(outer)] if len(outer) < 2 else [tuple(outer), (*rest, outer[0])]
        return draft, orders

    def order(self, draft: Draft, name: str, axes: Sequence[Axis], outer: Sequence[str]) -> Draft:
        long = [a.name for a in axes if a.extent.value > 1]
        loops = (*outer, *(f"{a}.1" for a in long), *(f"{a}.2" for a in long))
        draft = draft.apply(Reorder(name, loops)) if len(loops) > 1 else draft
        return draft.apply(*(Annotate(name, f"{a}.1", "vthread") for a in long[:2]))

    # ------------------------------------------------------------------ the sum of products
    def accumulate(
        self, draft: Draft, output: str, producer: Stage, intrinsic: TensorIntrin, long: Sequence[str]
    ) -> tuple[Draft, str]:
        """On chip, inside the virtual threads; the loop over parts of the reduction, inside which operands arrive."""
        name = producer.name
        place = f"{long[-1]}.1" if long else draft.state.stage(output).axes[0].name
        draft = draft.apply(SetScope(name, "accumulator"), ComputeAt(name, output, place))
        loops = _innermost(producer, intrinsic) or []
        reduced = [a for a in producer.reduce_axes if a.name not in loops]
        spatial = [a.name for a in producer.axes if a.name not in loops]
        parts = reduced[0]
        rows = [(d,) for d in divisors(int(parts.extent.value))]
        group = DecisionGroup.of(f"{output}.{parts.name}", (f"{output}.{parts.name}.tile",), rows)
        draft, factors = draft.decide(group)
        draft = draft.apply(Split(name, parts.name, factors, "exact"))
        first, within = f"{parts.name}.0", f"{parts.name}.1"
        # the reduction outside: products in a row add to different tiles, as pipelines like it
        inner = (first, within, *(a.name for a in reduced[1:]), *spatial, *loops)
        return draft.apply(Reorder(name, inner), Tensorize(name, loops[0], intrinsic.name)), first

    def operands(
        self, draft: Draft, stage: Stage, producer: Stage, first: str, outer: Sequence[str], resident: bool
    ) -> tuple[Draft, list[str]]:
        """Copies operands in; what few numbers the end of the stage reads stays for all loops inside the outermost one.

        Args:
            first: loop over parts of the reduction, at which operands arrive.
            outer: loops over tiles.
            resident: constant operands stay, too.
        """
        used: list[str] = []
        loads = [n for n in walk(producer.body) if n.op == "load"]
        for scope, read in zip(OPERAND_SCOPES, dict.fromkeys(str(n.args[0]) for n in loads), strict=True):
            source = draft.state.input(read)
            draft = draft.apply(CacheRead(read, scope, (producer.name,)))
            copy = f"{read}.{scope}"
            constant = source is not None and source.constant
            if constant and resident and outer:
                draft = draft.apply(ComputeAt(copy, stage.name, outer[0]))
            else:
                draft = draft.apply(ComputeAt(copy, producer.name, first))
            if source is None:  # padding, or whatever is computed on the way in
                draft = draft.apply(ComputeInline(read))
                used.append(read)
            used.append(copy)
        place = draft.state.stage(producer.name).attach
        for read in draft.state.stage(stage.name).reads():
            if draft.state.input(read) is not None:
                draft = draft.apply(CacheRead(read, "accumulator", (stage.name,)))
                copy = f"{read}.accumulator"
                at = (stage.name, outer[0]) if outer else (place.stage, place.leaf)
                draft = draft.apply(ComputeAt(copy, *at))
                used.append(copy)
        return draft, used


def tiles(extent: int, threads: int) -> list[tuple[int, int]]:
    """(threads, tile) of an axis whose last tile is clamped: little of it computed twice."""
    rows = []
    for count in range(1, threads + 1):
        for tile in range(1, extent // count + 1):
            if ceildiv(extent, tile * count) * tile * count <= extent * MAX_WASTE:
                rows.append((count, tile))
    return rows


def _innermost(stage: Stage, intrinsic: TensorIntrin) -> list[str] | None:
    """The last axes and the last reduce axis, if they are as long as the instruction's loops."""
    spatial, reduced = len(intrinsic.op.axis), len(intrinsic.op.reduce_axis)
    axes = [*stage.axes[-spatial:], *stage.reduce_axes[-reduced:]]
    return [a.name for a in axes] if tuple(int(a.extent.value) for a in axes) == intrinsic.extents else None
