"""Reductions into few elements, such as of a whole array or of long columns: also in parts, which run in parallel.

A reduction into few elements would leave cores idle. So a stretch of the reduction becomes a stage of its own, whose
results are reduced in turn (`Rfactor`: Suriana et al., "Parallel associative reductions in Halide", 2017).

The gradient of weights is a long sum of products with few results. Each tile of them would read both operands from
memory again. The operands of a part stay in the second cache while all tiles read them.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from search_space.hardware import Hardware
from search_space.ir.expr import dtype_bytes, variables, walk
from search_space.machines.cpu.elementwise import Elementwise
from search_space.machines.cpu.packed import PackedOperands
from search_space.machines.cpu.rowwise import RowWise, rows_of_sums
from search_space.machines.cpu.tiling import MultiLevelTiling, read_bytes, vector_axis
from search_space.machines.cpu.transposed import TransposedOperands
from search_space.machines.shared.rows import last_reduced
from search_space.schedule.builder import Loop
from search_space.schedule.state import Axis, Stage
from search_space.sketch.base import Draft, SketchRule
from search_space.sketch.reads import ends_in, same_places
from search_space.sketch.tables import ceildiv
from search_space.tags import Tag

FEW = 8
"""Rows or vectors of results per core that are computed at once, below which the reduction is split into parts."""
PARTS = (1, 4)
"""Units of work per core, for the choices of the number of parts: more of them are balanced better."""
LEAST, SHORTEST = 4096, 256
"""Fewest elements of a part, and fewest of them that are reduced to one result."""


class ReductionInParts(SketchRule):
    """A reduction by itself, and the element-wise stage that ends it: as other rules schedule it, and in parts.

    Operands of a sum of products may also be padded.
    """

    name = "reduction_in_parts"

    def matches(self, draft: Draft, stage: Stage, hardware: Hardware) -> bool:
        sums = self.reduction(draft, stage)
        return sums is not None and bool(self.counts(draft, sums, hardware))

    def reduction(self, draft: Draft, output: Stage) -> Stage | None:
        """Finds the only reduction of a draft, maybe followed by an element-wise output; None for other drafts.

        It excludes reductions of constants, which are better packed.
        """
        live = [s for s in draft.state.stages if s.attach.kind != "inline"]
        sums = [s for s in live if s.reducer is not None]
        if len(sums) != 1 or output.name not in draft.state.outputs or not output.axes:
            return None
        (stage,) = sums
        others = [s for s in live if s.name not in (stage.name, output.name)]
        if any(s.tag != Tag.PAD for s in others) or stage.tag == Tag.LIBRARY:
            return None
        if stage is not output and not (same_places(draft, stage, output) and ends_in(draft, stage, output)):
            return None
        given = [draft.state.input(n.args[0]) for n in walk(stage.body) if n.op == "load"]
        if any(source is not None and source.constant for source in given):
            return None
        if reads_once(stage):
            return stage if not others and (last_reduced(draft.state, stage) or vector_axis(stage)) else None
        return stage if stage.tag == Tag.NONE else None

    def counts(self, draft: Draft, sums: Stage, hardware: Hardware) -> list[int]:
        """Returns the numbers of parts; none if the results occupy all cores already, or parts would be short."""
        if not reads_once(sums):
            return self.count_in_cache(draft, sums, hardware)
        results = prod(int(a.extent.value) for a in sums.axes)
        total = prod(int(a.extent.value) for a in sums.reduce_axes)
        units = results if last_reduced(draft.state, sums) else ceildiv(results, hardware.float_lanes)
        if units >= FEW * hardware.cores or hardware.cores == 1:
            return []
        most = min(results * total // LEAST, total // SHORTEST, max(int(a.extent.value) for a in sums.reduce_axes))
        wanted = {min(ceildiv(each * hardware.cores, units), most) for each in PARTS}
        return sorted(n for n in wanted if n > 1)

    def count_in_cache(self, draft: Draft, sums: Stage, hardware: Hardware) -> list[int]:
        """Returns the numbers of parts of a sum of products, whose operands take at most half of the second cache.

        Returns none if an operand stays in that cache as a whole, or the results would fill it.
        """
        sizes, half = read_bytes(draft, sums), hardware.l2_bytes // 2
        results = prod(int(a.extent.value) for a in sums.axes) * dtype_bytes(sums.dtype)
        if sum(size > hardware.l2_bytes for size in sizes) < 2 or results > half // 2:
            return []
        longest = max(int(a.extent.value) for a in sums.reduce_axes)
        most = min(prod(int(a.extent.value) for a in sums.reduce_axes) // SHORTEST, longest)
        fewest = max(ceildiv(sum(sizes), half), hardware.cores)
        return sorted({count for count in (min(fewest, most), min(2 * fewest, most)) if count > 1})

    def apply(self, draft: Draft, stage: Stage, hardware: Hardware) -> list[Draft]:
        sums = self.reduction(draft, stage)
        assert sums is not None
        rules: tuple[SketchRule, ...] = (RowWise(), PackedOperands(), MultiLevelTiling(), Elementwise())
        if not reads_once(sums):
            rules = (TransposedOperands(), *rules)
        whole = next(rule for rule in rules if rule.matches(draft, stage, hardware))
        drafts = whole.apply(draft, stage, hardware)
        if isinstance(whole, Elementwise) and not reads_once(sums):
            return drafts  # parts would not be tiled, either
        for count in self.counts(draft, sums, hardware):
            drafts += self.split_reduction(draft, stage, sums, count, hardware)
        return drafts

    def split_reduction(self, draft: Draft, output: Stage, sums: Stage, count: int, hardware: Hardware) -> list[Draft]:
        """Computes the parts in parallel, then reduces their results."""
        name, axis = sums.name, longest_outermost(sums, count)
        extent = int(axis.extent.value)
        # A number of parts that divides the extent needs no checks; up to twice as many parts are as good.
        count = next((n for n in range(count, 2 * count + 1) if extent % n == 0), count)
        length = ceildiv(extent, count)
        draft, (part, _) = draft.split(name, axis.name, (length,), "guard" if extent % length else "exact")
        draft, partial = draft.rfactor(name, part)
        dims = len(sums.axes)
        draft = draft.relayout(partial, (dims, *range(dims))).variant(f"{count}_parts")
        if not reads_once(sums):
            draft = reduce_parts(draft, name, part, hardware, parallel=True).finish(name)
            # The rules that follow tile it: their loops over parts are parallel.
            draft = replace(draft, parts={**draft.parts, partial: part})
        else:
            draft = reduce_parts(draft, name, part, hardware).finish(name)
            if last_reduced(draft.state, draft.stage(partial)):
                draft = rows_of_sums(draft, partial, hardware)
                draft = draft.finish(*(s.name for s in draft.state.stages if s.name != output.name))
        if output.name == name:
            return [draft]
        return Elementwise().apply(draft, draft.stage(output.name), hardware)


def reads_once(sums: Stage) -> bool:
    """Tells whether a reduction reads an operand once, so that no result shares a read of it with another."""
    axes = {a.name for a in (*sums.axes, *sums.reduce_axes) if a.extent.value != 1}
    loads = [n for n in walk(sums.body) if n.op == "load"]
    return any(axes <= {name for index in n.args[1:] for name in variables(index)} for n in loads)


def longest_outermost(sums: Stage, count: int) -> Axis:
    """Returns the axis to cut into `count` parts: the outermost one in memory that is long enough, or the longest."""
    reduced = {a.name: a for a in sums.reduce_axes}
    reads = [n for n in walk(sums.body) if n.op == "load"]
    order = [name for n in reads for index in n.args[1:] for name in sorted(variables(index)) if name in reduced]
    long = (reduced[name] for name in order if reduced[name].extent.value >= count)
    return next(long, max(reduced.values(), key=lambda a: int(a.extent.value)))


def reduce_parts(draft: Draft, name: str, part: Loop, hardware: Hardware, parallel: bool = False) -> Draft:
    """Reduces the results of the parts: in vectors along the results, if these are enough.

    Args:
        parallel: whether rows of results run in parallel; few results are reduced by one thread.
    """
    stage, lanes = draft.stage(name), hardware.float_lanes
    *outer, last = stage.spatial
    if stage.axes[-1].extent.value >= lanes:
        draft, (first, lane) = draft.split(name, last, (lanes,), "guard")
        draft = draft.reorder(name, *outer, first, part, lane).vectorize(name, lane)
    if parallel and outer:
        draft, rows = draft.fuse(name, outer)
        draft = draft.parallel(name, rows)
    return draft
