"""The fallback: vectors along the last axis, the rest in parallel. Fit for element-wise outputs, legal for all."""

from __future__ import annotations

from math import prod

from search_space.hardware import COLUMNS, Hardware, fragment_columns
from search_space.ir.expr import lift, variables, walk
from search_space.lower.inline import expand_body
from search_space.machines.shared.lanes import select_lanes
from search_space.schedule.state import Stage
from search_space.sketch.base import Draft, SketchRule
from search_space.sketch.reads import read_across, variable
from search_space.sketch.tables import DecisionGroup, block_counts, ceildiv

CHUNKS = (1, 4, 16, 64, 256)
"""Vectors, or rows, in one iteration of the parallel loop."""
UNROLLS = (1, 2, 4)
"""Numbers of unrolled vectors."""
MOST_INTERLEAVED = 4
"""Greatest number of interleaved rows: one vector needs as many loads, while gathering loads each lane by itself."""
SHORT_ROW = 4
"""Vectors of a row below which it is joined with the next, if both are contiguous in memory."""
WHOLE_ROW = 32
"""Greatest number of vectors of a row that is unrolled completely."""


def reads_computed_places(stage: Stage) -> bool:
    """Tells whether an index is itself read from a tensor."""
    loads = (node for node in walk(stage.body) if node.op == "load")
    return any(inner.op == "load" for load in loads for index in load.args[1:] for inner in walk(index))


def interleaved_axes(draft: Draft, stage: Stage, hardware: Hardware) -> int | None:
    """Returns the number of last axes along which rows of an input are interleaved; None if they are not.

    A shuffle of channels does so, too: its output has the groups innermost, so that lanes of a vector read a few short
    runs. In one loop over all elements, the reads of the lanes would differ from vector to vector.
    """
    if int(stage.axes[-1].extent.value) > MOST_INTERLEAVED:
        return None
    last, reads = stage.axes[-1].name, [n for n in walk(expand_body(stage, draft.state)) if n.op == "load"]
    # Otherwise lanes already read neighbours along the last dimension.
    if not any(last in variables(index) for n in reads for index in n.args[1:-1]):
        return None
    extent = 1
    # The shortest row that fills a vector; if it needs all axes, it is the flat loop.
    for axes, axis in enumerate(reversed(stage.axes), 1):
        extent *= int(axis.extent.value)
        if extent >= hardware.float_lanes:
            return axes if axes < len(stage.axes) else None
    return None


def axis_extent(stage: Stage, name: str) -> int:
    """Reads the number of iterations of a stage's axis."""
    return next(int(a.extent.value) for a in stage.axes if a.name == name)


def joined_axes(draft: Draft, stage: Stage, least: int) -> int:
    """Returns the number of last axes that form one row, such as those of an image whose channels are transposed.

    They are contiguous in all inputs that are read along them. The number is 1 if all inputs are read in the order of
    the axes. Axes are added until the row has `least` elements, since a longer one leaves less to run in parallel.
    """
    reads = [n for n in walk(expand_body(stage, draft.state)) if n.op == "load" and len(n.args) > 1]
    order = {variable(axis): place for place, axis in enumerate(stage.axes)}
    dims = [{index: place for place, index in enumerate(n.args[1:])} for n in reads]
    if all(seen == sorted(seen) for seen in ([order[i] for i in at if i in order] for at in dims)):
        return 1
    count = 1
    while count < len(stage.axes) and prod(int(a.extent.value) for a in stage.axes[-count:]) < least:
        before, last = (variable(stage.axes[-count - step]) for step in (1, 0))
        for node, at in zip(reads, dims, strict=True):
            names = {str(v.args[0]) for v in (before, last)}
            if not any(names & variables(index) for index in node.args[1:]):
                continue
            source = draft.state.input(node.args[0]) or draft.state.stage(node.args[0])
            along = at.get(last, -1)
            if at.get(before) != along - 1 or lift(source.shape[along]) is not stage.axes[-count].extent:
                return count
        count += 1
    return count


class Elementwise(SketchRule):
    """Vectors over all axes fused to one; and, if rows are long enough, vectors along each row.

    The second variant reads inputs that are broadcast over rows as vectors, and rows that lie apart in memory. It is
    the only variant if a table selects the rows that are read.
    """

    name = "elementwise"

    def matches(self, draft: Draft, stage: Stage, hardware: Hardware) -> bool:
        return True

    def apply(self, draft: Draft, stage: Stage, hardware: Hardware) -> list[Draft]:
        name = stage.name
        if not stage.axes:
            return [draft.finish(name)]
        if stage.reducer is not None:  # the reduce loops stay inside; scalars along the fused loop
            draft, fused = draft.fuse(name, stage.spatial)
            return [draft.parallel(name, fused).finish(name)]
        along = joined_axes(draft, stage, SHORT_ROW * hardware.float_lanes)
        row = prod(int(a.extent.value) for a in stage.axes[-along:])
        if len(stage.axes) == 1 or row < hardware.float_lanes:
            if (turns := interleaved_axes(draft, stage, hardware)) is not None:
                return [self.rows(draft, stage, hardware, turns).variant("turns").finish(name)]
            return [self.flat(draft, stage, hardware).finish(name)]
        rows = self.rows(draft, stage, hardware, along)
        if reads_computed_places(stage):  # in a flat loop each lane would look up its own row
            return [rows.variant("rows").finish(name)]
        if any(s.reducer is not None for s in draft.state.stages):  # a side stage is not worth two sketches
            return [rows.finish(name)]
        drafts = [rows.variant("rows")]
        if along == 1:  # else a vector of the flat loop would span several rows, which lie apart
            drafts.insert(0, self.flat(draft, stage, hardware).variant("flat"))
        across = read_across(draft, stage, 1 if along > 1 else COLUMNS)
        if (
            across is not None
            and axis_extent(stage, across[1]) >= COLUMNS
            and row >= select_lanes(draft, stage, hardware)
        ):
            drafts.append(self.tiles(draft, stage, across, along, hardware).variant("tiles"))
        return [d.finish(name) for d in drafts]

    def flat(self, draft: Draft, stage: Stage, hardware: Hardware) -> Draft:
        """Makes chunks of vectors over all elements."""
        lanes, name = select_lanes(draft, stage, hardware), stage.name
        draft, fused = draft.fuse(name, stage.spatial)
        elements = prod(int(a.extent.value) for a in stage.axes)
        rows = [(c, u) for c in CHUNKS for u in UNROLLS if c == 1 or c * u * lanes <= elements]
        dividing = [(c, u) for c, u in rows if elements % (c * u * lanes) == 0]
        tail = "exact" if lanes > hardware.float_lanes and dividing else "guard"
        rows = dividing if tail == "exact" else rows  # masks of as many lanes cost more than the copies themselves
        draft, (chunk, unroll) = draft.decide(
            # Both in one table: a chunk and its unrolled vectors together must not exceed the number of elements.
            DecisionGroup.of(f"{name}.chunk", (f"{name}.chunk", f"{name}.unroll"), rows)
        )
        draft, (outer, _, *inner) = draft.split(name, fused, (chunk, unroll, lanes), tail)
        return draft.parallel(name, outer).in_registers(name, inner)

    def tiles(self, draft: Draft, stage: Stage, across: tuple[str, str], along: int, hardware: Hardware) -> Draft:
        """Makes tiles of output rows that read neighbours in an input's rows, so that its cache lines are used at once.

        Args:
            across: the input, and the axis of the output that runs along its rows.
            along: number of last axes that form a row of the output.
        """
        lanes, name, (source, axis) = select_lanes(draft, stage, hardware), stage.name, across
        draft, last = draft.fuse(name, stage.spatial[-along:])
        others = [other for other in stage.spatial[:-along] if other != axis]
        extent = axis_extent(stage, axis)
        read = draft.state.input(source)
        columns = fragment_columns(read.dtype) if read is not None else COLUMNS
        columns = columns if extent >= columns else COLUMNS
        draft, blocks = draft.choose(f"{name}.blocks", block_counts(ceildiv(extent, columns)))
        # Clamped, not guarded: all columns then exist, and can be read at once.
        draft, (outer, block, column) = draft.split(name, axis, (blocks, columns), "clamp")
        draft, (run, vector) = draft.split(name, last, (lanes,), "clamp")
        draft = draft.reorder(name, *others, outer, run, block, column, vector)
        draft, fused = draft.fuse(name, (*others, outer))
        return draft.parallel(name, fused).in_registers(name, (column, vector))

    def rows(self, draft: Draft, stage: Stage, hardware: Hardware, axes: int = 1) -> Draft:
        """Makes parallel blocks of rows, with vectors along each row; a row is the last `axes` axes."""
        lanes, name = select_lanes(draft, stage, hardware) if axes == 1 else hardware.float_lanes, stage.name
        count, extent = (prod(int(a.extent.value) for a in some) for some in (stage.axes[:-axes], stage.axes[-axes:]))
        draft, row = draft.fuse(name, stage.spatial[-axes:])
        draft, fused = draft.fuse(name, stage.spatial[:-axes])
        draft, chunk = draft.choose(f"{name}.rows", [c for c in CHUNKS if c == 1 or c <= count])
        unrolls = [u for u in UNROLLS if u == 1 or u * lanes <= extent]
        if axes > 1 and (all_of := -(-extent // lanes)) <= WHOLE_ROW and all_of not in unrolls:
            unrolls.append(all_of)  # the lanes past the end are then known at compile time
        # 4 is the greatest of `UNROLLS`: an extent that it divides is divided by all.
        tail = "exact" if extent % (4 * lanes) == 0 else "guard"
        if lanes > hardware.float_lanes and extent % lanes == 0:
            tail, unrolls = "exact", [u for u in unrolls if extent % (u * lanes) == 0]
        draft, unroll = draft.choose(f"{name}.vectors", unrolls)
        draft, (outer, _) = draft.split(name, fused, (chunk,), "guard")
        draft, (_, *inner) = draft.split(name, row, (unroll, lanes), tail)
        return draft.parallel(name, outer).in_registers(name, inner)
