"""The fallback: vectors along the last axis, the rest in parallel. Right for element-wise outputs, legal for all."""

from __future__ import annotations

from math import prod

from search_space.hardware import COLUMNS, Hardware, columns_of
from search_space.ir.expr import lift, variables, walk
from search_space.lower.inline import expanded
from search_space.machines.shared.lanes import lanes_of
from search_space.schedule.state import Stage
from search_space.sketch.base import Draft, SketchRule
from search_space.sketch.reads import read_across, variable
from search_space.sketch.tables import DecisionGroup, block_counts, ceildiv

CHUNKS = (1, 4, 16, 64, 256)
UNROLLS = (1, 2, 4)
MOST_INTERLEAVED = 4
"""Rows that are interleaved: as many loads make a vector, where gathering loads each lane by itself."""
SHORT_ROW = 4
"""Vectors of a row below which it is joined with the next, where both lie one after another."""
WHOLE_ROW = 32
"""Vectors of a row that may all be written out."""


def reads_computed_places(stage: Stage) -> bool:
    """Whether an index is itself read from a tensor."""
    loads = (node for node in walk(stage.body) if node.op == "load")
    return any(inner.op == "load" for load in loads for index in load.args[1:] for inner in walk(index))


def interleaved_axes(draft: Draft, stage: Stage, hardware: Hardware) -> int | None:
    """How many of the last axes interleave rows of an input, element by element, if they do.

    So does a shuffle of channels, whose output has the groups innermost: lanes of a vector read a few short runs. Over
    all elements in one loop, what the lanes of a vector read would differ from vector to vector.
    """
    if int(stage.axes[-1].extent.value) > MOST_INTERLEAVED:
        return None
    last, reads = stage.axes[-1].name, [n for n in walk(expanded(stage, draft.state)) if n.op == "load"]
    # Along the last dimension the lanes would read side by side as it is.
    if not any(last in variables(index) for n in reads for index in n.args[1:-1]):
        return None
    extent = 1
    # The shortest row that fills a vector; where it takes all axes, the flat loop is the same.
    for axes, axis in enumerate(reversed(stage.axes), 1):
        extent *= int(axis.extent.value)
        if extent >= hardware.float_lanes:
            return axes if axes < len(stage.axes) else None
    return None


def extent_of(stage: Stage, name: str) -> int:
    """The extent of an axis."""
    return next(int(a.extent.value) for a in stage.axes if a.name == name)


def joined_axes(draft: Draft, stage: Stage, least: int) -> int:
    """How many of the last axes are one row, as those of an image are where channels change places with it.

    They lie side by side in all inputs that are read along them. One where all inputs are read in the order of the
    axes, and no more than give `least` elements, as a longer row leaves less to run in parallel.
    """
    reads = [n for n in walk(expanded(stage, draft.state)) if n.op == "load" and len(n.args) > 1]
    order = {variable(axis): place for place, axis in enumerate(stage.axes)}
    places = [{index: place for place, index in enumerate(n.args[1:])} for n in reads]
    if all(seen == sorted(seen) for seen in ([order[i] for i in at if i in order] for at in places)):
        return 1
    count = 1
    while count < len(stage.axes) and prod(int(a.extent.value) for a in stage.axes[-count:]) < least:
        before, last = (variable(stage.axes[-count - step]) for step in (1, 0))
        for node, at in zip(reads, places, strict=True):
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
    """Vectors over all axes fused to one; and, where rows are long enough, vectors along each row.

    The second reads what is broadcast over rows as vectors, and rows that lie apart in memory; it is the only one where
    a table says which rows are read.
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
        if reads_computed_places(stage):  # lanes of a flat loop would each look up where they read
            return [rows.variant("rows").finish(name)]
        if any(s.reducer is not None for s in draft.state.stages):  # what is done besides is not worth two sketches
            return [rows.finish(name)]
        drafts = [rows.variant("rows")]
        if along == 1:  # the lanes of all elements in one loop would be in several rows, which lie apart
            drafts.insert(0, self.flat(draft, stage, hardware).variant("flat"))
        across = read_across(draft, stage, 1 if along > 1 else COLUMNS)
        if across is not None and extent_of(stage, across[1]) >= COLUMNS and row >= lanes_of(draft, stage, hardware):
            drafts.append(self.tiles(draft, stage, across, along, hardware).variant("tiles"))
        return [d.finish(name) for d in drafts]

    def flat(self, draft: Draft, stage: Stage, hardware: Hardware) -> Draft:
        """Chunks of vectors over all elements."""
        lanes, name = lanes_of(draft, stage, hardware), stage.name
        draft, fused = draft.fuse(name, stage.spatial)
        elements = prod(int(a.extent.value) for a in stage.axes)
        rows = [(c, u) for c in CHUNKS for u in UNROLLS if c == 1 or c * u * lanes <= elements]
        dividing = [(c, u) for c, u in rows if elements % (c * u * lanes) == 0]
        tail = "exact" if lanes > hardware.float_lanes and dividing else "guard"
        rows = dividing if tail == "exact" else rows  # masks of as many lanes cost more than the copies themselves
        draft, (chunk, unroll) = draft.decide(
            # Both in one table: a chunk and its unrolled vectors together must not exceed what there is.
            DecisionGroup.of(f"{name}.chunk", (f"{name}.chunk", f"{name}.unroll"), rows)
        )
        draft, (outer, _, *inner) = draft.split(name, fused, (chunk, unroll, lanes), tail)
        return draft.parallel(name, outer).in_registers(name, inner)

    def tiles(self, draft: Draft, stage: Stage, across: tuple[str, str], along: int, hardware: Hardware) -> Draft:
        """Tiles of rows of the output that read neighbours in the rows of an input: what a line of it holds is used
        while it is there.

        Args:
            across: the input, and the axis of the output that runs along its rows.
            along: how many of the last axes are a row of the output.
        """
        lanes, name, (source, axis) = lanes_of(draft, stage, hardware), stage.name, across
        draft, last = draft.fuse(name, stage.spatial[-along:])
        others = [other for other in stage.spatial[:-along] if other != axis]
        extent = extent_of(stage, axis)
        read = draft.state.input(source)
        columns = columns_of(read.dtype) if read is not None else COLUMNS
        columns = columns if extent >= columns else COLUMNS
        draft, blocks = draft.choose(f"{name}.blocks", block_counts(ceildiv(extent, columns)))
        # Clamped, not guarded: all columns are then always there, and can be read at once.
        draft, (outer, block, column) = draft.split(name, axis, (blocks, columns), "clamp")
        draft, (run, vector) = draft.split(name, last, (lanes,), "clamp")
        draft = draft.reorder(name, *others, outer, run, block, column, vector)
        draft, fused = draft.fuse(name, (*others, outer))
        return draft.parallel(name, fused).in_registers(name, (column, vector))

    def rows(self, draft: Draft, stage: Stage, hardware: Hardware, axes: int = 1) -> Draft:
        """Blocks of rows in parallel, vectors along each; a row is the last `axes` axes."""
        lanes, name = lanes_of(draft, stage, hardware) if axes == 1 else hardware.float_lanes, stage.name
        count, extent = (prod(int(a.extent.value) for a in some) for some in (stage.axes[:-axes], stage.axes[-axes:]))
        draft, row = draft.fuse(name, stage.spatial[-axes:])
        draft, fused = draft.fuse(name, stage.spatial[:-axes])
        draft, chunk = draft.choose(f"{name}.rows", [c for c in CHUNKS if c == 1 or c <= count])
        unrolls = [u for u in UNROLLS if u == 1 or u * lanes <= extent]
        if axes > 1 and (all_of := -(-extent // lanes)) <= WHOLE_ROW and all_of not in unrolls:
            unrolls.append(all_of)  # which lanes are past the end is known then
        # 4 is the greatest of `UNROLLS`: what it divides, all of them do.
        tail = "exact" if extent % (4 * lanes) == 0 else "guard"
        if lanes > hardware.float_lanes and extent % lanes == 0:
            tail, unrolls = "exact", [u for u in unrolls if extent % (u * lanes) == 0]
        draft, unroll = draft.choose(f"{name}.vectors", unrolls)
        draft, (outer, _) = draft.split(name, fused, (chunk,), "guard")
        draft, (_, *inner) = draft.split(name, row, (unroll, lanes), tail)
        return draft.parallel(name, outer).in_registers(name, inner)
