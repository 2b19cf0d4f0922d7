"""Reductions into few elements, as of a whole array or of long columns: also in parts, which run side by side.

What is kept alone would leave cores idle. A stretch of the reduction is then a stage of its own, and what the
stretches give is reduced in turn (`Rfactor`: Suriana et al., "Parallel associative reductions in Halide", 2017).
"""

from __future__ import annotations

from math import prod

from search_space.hardware import Hardware
from search_space.ir.expr import variables, walk
from search_space.machines.cpu.elementwise import Elementwise
from search_space.machines.cpu.rowwise import RowWise, rows_of_sums
from search_space.machines.cpu.tiling import MultiLevelTiling, vector_axis
from search_space.machines.shared.rows import last_reduced
from search_space.schedule.builder import Loop
from search_space.schedule.state import Axis, Stage
from search_space.sketch.base import Draft, SketchRule
from search_space.sketch.reads import ends_in, same_places
from search_space.sketch.tables import ceildiv
from search_space.tags import Tag

FEW = 8
"""What is kept for each core that is computed at once, a row or a vector, below which there are parts."""
PARTS = (1, 4)
"""What there is to do for each core, in how many parts: more of them are dealt out more evenly."""
LEAST, SHORTEST = 4096, 256
"""Elements of a part at least, and of those the ones that are reduced to one."""


class ReductionInParts(SketchRule):
    """A reduction by itself, and the element-wise stage that ends it: whole, as other rules have it, and in parts."""

    name = "reduction_in_parts"

    def matches(self, draft: Draft, stage: Stage, hardware: Hardware) -> bool:
        sums = self.reduction(draft, stage)
        return sums is not None and bool(self.counts(draft, sums, hardware))

    def reduction(self, draft: Draft, output: Stage) -> Stage | None:
        """The reduction that is all there is, but for the output that is made of its elements; None where there is
        more, of products, whose factors are read again and again, and of constants, which are better packed."""
        live = [s for s in draft.state.stages if s.attach.kind != "inline"]
        sums = [s for s in live if s.reducer is not None]
        if len(sums) != 1 or output.name not in draft.state.outputs or not output.axes:
            return None
        (found,) = sums
        if any(s.name not in (found.name, output.name) for s in live) or found.tag == Tag.LIBRARY:
            return None
        if found is not output and not (same_places(draft, found, output) and ends_in(draft, found, output)):
            return None
        axes = {a.name for a in (*found.axes, *found.reduce_axes) if a.extent.value != 1}
        reads = [n for n in walk(found.body) if n.op == "load"]
        given = [draft.state.input(n.args[0]) for n in reads]
        if any(source is not None and source.constant for source in given):
            return None
        once = any(axes <= {v for index in n.args[1:] for v in variables(index)} for n in reads)
        return found if once and (last_reduced(draft.state, found) or vector_axis(found)) else None

    def counts(self, draft: Draft, sums: Stage, hardware: Hardware) -> list[int]:
        """Into how many parts it is cut; none where what is kept is enough for all cores, or parts would be short."""
        kept = prod(int(a.extent.value) for a in sums.axes)
        total = prod(int(a.extent.value) for a in sums.reduce_axes)
        units = kept if last_reduced(draft.state, sums) else ceildiv(kept, hardware.float_lanes)
        if units >= FEW * hardware.cores or hardware.cores == 1:
            return []
        most = min(kept * total // LEAST, total // SHORTEST, max(int(a.extent.value) for a in sums.reduce_axes))
        wanted = {min(ceildiv(each * hardware.cores, units), most) for each in PARTS}
        return sorted(n for n in wanted if n > 1)

    def apply(self, draft: Draft, stage: Stage, hardware: Hardware) -> list[Draft]:
        sums = self.reduction(draft, stage)
        assert sums is not None
        rules: tuple[SketchRule, ...] = (RowWise(), MultiLevelTiling(), Elementwise())
        whole = next(rule for rule in rules if rule.matches(draft, stage, hardware))
        drafts = whole.apply(draft, stage, hardware)
        for count in self.counts(draft, sums, hardware):
            drafts += self.parted(draft, stage, sums, count, hardware)
        return drafts

    def parted(self, draft: Draft, output: Stage, sums: Stage, count: int, hardware: Hardware) -> list[Draft]:
        """The parts in parallel, then what becomes of them."""
        name, axis = sums.name, longest_outermost(sums, count)
        extent = int(axis.extent.value)
        # A number of parts that divides leaves nothing to be checked; up to twice as many are as good.
        count = next((n for n in range(count, 2 * count + 1) if extent % n == 0), count)
        length = ceildiv(extent, count)
        draft, (part, _) = draft.split(name, axis.name, (length,), "guard" if extent % length else "exact")
        draft, partial = draft.rfactor(name, part)
        dims = len(sums.axes)
        draft = draft.relayout(partial, (dims, *range(dims))).variant(f"{count}_parts")
        draft = joined(draft, name, part, hardware).finish(name)
        if last_reduced(draft.state, draft.stage(partial)):
            draft = rows_of_sums(draft, partial, hardware)
            draft = draft.finish(*(s.name for s in draft.state.stages if s.name != output.name))
        if output.name == name:
            return [draft]
        return Elementwise().apply(draft, draft.stage(output.name), hardware)


def longest_outermost(sums: Stage, count: int) -> Axis:
    """The reduce axis to cut into so many parts: the outermost one in memory that is as long, or the longest."""
    reduced = {a.name: a for a in sums.reduce_axes}
    reads = [n for n in walk(sums.body) if n.op == "load"]
    order = [name for n in reads for index in n.args[1:] for name in sorted(variables(index)) if name in reduced]
    long = (reduced[name] for name in order if reduced[name].extent.value >= count)
    return next(long, max(reduced.values(), key=lambda a: int(a.extent.value)))


def joined(draft: Draft, name: str, part: Loop, hardware: Hardware) -> Draft:
    """The reduction of the parts, of which there are few: in vectors along what is kept, if that is long enough."""
    stage, lanes = draft.stage(name), hardware.float_lanes
    *outer, last = stage.spatial
    if stage.axes[-1].extent.value < lanes:
        return draft
    draft, (first, lane) = draft.split(name, last, (lanes,), "guard")
    return draft.reorder(name, *outer, first, part, lane).vectorize(name, lane)
