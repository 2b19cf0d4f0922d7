"""Row-wise operators (softmax, layer norm, reductions along the last axes): a row at a time, in vectors, in cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from search_space.hardware import Hardware
from search_space.ir.expr import Expr, lift
from search_space.machines.shared.rows import last_reduced, row_group
from search_space.schedule.builder import Loop
from search_space.schedule.state import Stage
from search_space.sketch.base import Draft, SketchRule
from search_space.sketch.tables import ceildiv

AT_ONCE = (1, 2, 4, 8)
"""Vectors of a row at a time: partial results that hide the latency of an operation."""
MOST_AT_ONCE = 16
"""Greatest number of vectors of a short row that are unrolled completely."""

FEW_ROWS = (2, 4, 8)
"""Rows at a time: lanes of one are reduced while vectors of the next are computed."""
BLOCKS_EACH = 4
"""Fewest blocks of rows for each core, so that the work is balanced."""


class RowWise(SketchRule):
    """Rows in parallel; every stage of a row attached to it; reductions kept in vectors of partial results."""

    name = "row_wise"

    def matches(self, draft: Draft, stage: Stage, hardware: Hardware) -> bool:
        return row_group(draft, stage, lambda s: bool(last_reduced(draft.state, s))) is not None

    def apply(self, draft: Draft, stage: Stage, hardware: Hardware) -> list[Draft]:
        group = row_group(draft, stage, lambda s: bool(last_reduced(draft.state, s)))
        assert group is not None
        return [*self.by_row(draft, stage, group, hardware), *self.blocks(draft, stage, group, hardware)]

    def by_row(self, draft: Draft, stage: Stage, group: Sequence[Stage], hardware: Hardware) -> list[Draft]:
        """Computes one row after another."""
        output, lanes = stage.name, hardware.float_lanes
        rows = len(next(s for s in group if s.reducer is not None).axes)
        draft, accumulators = decide_accumulators(draft, group, hardware)
        along = [int(s.axes[-1].extent.value) for s in group if len(s.axes) > rows]
        draft, unroll = draft.choose("unroll", vector_counts(along, hardware))
        if stage.reducer is not None:  # rfactor comes before the loops are fused or annotated
            draft, partial = in_parts(draft, output, accumulators, lanes)
        draft, row = draft.fuse(output, stage.spatial[:rows])
        draft = draft.parallel(output, row)
        for member in reversed(group):
            name = member.name
            if name != output:
                draft = draft.compute_at(name, output, row)
            if member.reducer is not None:
                if name != output:
                    draft, partial = in_parts(draft, name, accumulators, lanes)
                draft = reduction(draft, name, partial, (output, row), lanes)
                # One number per row, which the vectors of other stages have in every lane.
                draft = draft if name == output else draft.set_scope(name, "local")
            elif len(member.axes) == rows and name != output:
                draft = draft.set_scope(name, "local")
            elif len(member.axes) > rows:
                draft = vectors(draft, name, member.spatial[-1], unroll, lanes)
        return [draft.variant("rows").finish(*(s.name for s in draft.state.stages))]

    def blocks(self, draft: Draft, output: Stage, group: Sequence[Stage], hardware: Hardware) -> list[Draft]:
        """Computes a few rows at a time: while lanes of one are reduced, vectors of the next are computed.

        A variant takes full vectors of rows: a scalar of each row, such as the logarithm of a sum, is then computed for
        a vector of rows at once.
        """
        rows = len(next(s for s in group if s.reducer is not None).axes)
        if len(output.axes) == rows:
            return []
        most = rows_at_once(output, rows, group, hardware)
        few = [n for n in FEW_ROWS if n <= most]
        whole = [n for n in (hardware.float_lanes, 2 * hardware.float_lanes) if n <= most]
        found = [self.block(draft, output, group, few, hardware).variant("few_rows")] if few else []
        single = any(s.reducer is None and len(s.axes) == rows for s in group)
        found += [self.block(draft, output, group, whole, hardware).variant("row_vectors")] if whole and single else []
        return [draft.finish(*(s.name for s in draft.state.stages)) for draft in found]

    def block(
        self, draft: Draft, output: Stage, group: Sequence[Stage], counts: Sequence[int], hardware: Hardware
    ) -> Draft:
        """Computes several rows in each iteration of the parallel loop, in which every stage loops over them."""
        lanes, rows = hardware.float_lanes, len(next(s for s in group if s.reducer is not None).axes)
        draft, accumulators = decide_accumulators(draft, group, hardware)
        along = [int(s.axes[-1].extent.value) for s in group if len(s.axes) > rows]
        draft, unroll = draft.choose("unroll", vector_counts(along, hardware))
        draft, at_once = draft.choose("rows", counts)
        name = output.name
        # Clamped: no row needs a check, and the last block may compute some rows again.
        draft, (outer, _) = draft.split(name, output.spatial[rows - 1], (at_once,), "clamp")
        draft, block = draft.fuse(name, (*output.spatial[: rows - 1], outer))
        draft = draft.parallel(name, block)
        for member in reversed(group):
            name = member.name
            if name != output.name:
                draft = draft.compute_at(name, output.name, block)
            row = draft.stage(name).leaves[rows - 1 if name != output.name else 1]
            if member.reducer is not None:
                draft, partial = in_parts(draft, name, accumulators, lanes)
                draft = reduction(draft, name, partial, (name, row), lanes)
            elif len(member.axes) > rows:
                draft = vectors(draft, name, member.spatial[-1], unroll, lanes)
            elif counts[0] % lanes:
                draft = draft.unroll(name, row)
            else:
                draft, (_, lane) = draft.split(name, row, (lanes,))
                draft = draft.vectorize(name, lane)
        return draft


def rows_at_once(output: Stage, rows: int, group: Sequence[Stage], hardware: Hardware) -> int:
    """Bounds the number of rows at a time: their data stay in the first-level cache, and all cores have blocks."""
    total, last = prod(int(a.extent.value) for a in output.axes[:rows]), int(output.axes[rows - 1].extent.value)
    length = max(prod(int(a.extent.value) for a in s.reduce_axes) for s in group if s.reducer is not None)
    row_bytes = 4 * length * (1 + sum(len(s.axes) > rows for s in group if s is not output))
    return min(last, total // (BLOCKS_EACH * hardware.cores), hardware.l1_bytes // row_bytes)


@dataclass(frozen=True)
class Partial:
    """Partial results of a reduction.

    Attributes:
        stage: stage that computes them.
        steps: its loop over the row; results: the loop over the partial results; both innermost.
        final_stage: the stage that reduces them to one vector; lanes: the loop over it, which the reduction is left
            with.
    """

    stage: str
    steps: Loop
    results: Loop
    final_stage: str
    lanes: Loop


def decide_accumulators(draft: Draft, group: Sequence[Stage], hardware: Hardware) -> tuple[Draft, Expr | int]:
    """Decides how many vectors of partial results the reductions of some stages have."""
    rows = []
    for stage in (s for s in group if s.reducer is not None):
        run = last_reduced(draft.state, stage)
        rows.append(prod(int(a.extent.value) for a in stage.reduce_axes if a.name in run))
    counts = [n for n in vector_counts(rows, hardware) if n + 2 <= hardware.vector_registers]
    return draft.choose("accumulators", counts)


def vector_counts(rows: Sequence[int], hardware: Hardware) -> list[int]:
    """Lists how many vectors may be processed at a time, for rows of these lengths.

    A short row may also be unrolled completely, or by halves: the lanes past its end are then known at compile time,
    while a loop compares them in every iteration.
    """
    vectors = [ceildiv(n, hardware.float_lanes) for n in rows]
    short = {part for count in vectors for part in (count, ceildiv(count, 2)) if part <= MOST_AT_ONCE}
    return [n for n in sorted({*AT_ONCE, *short}) if n <= max(vectors, default=1)]


def in_parts(draft: Draft, name: str, accumulators: Expr | int, lanes: int) -> tuple[Draft, Partial]:
    """Splits a reduction into `accumulators` vectors of partial results over the row, and their reduction."""
    stage = draft.stage(name)
    run = last_reduced(draft.state, stage)
    others = [axis for axis in stage.reduction if axis not in run]
    draft = draft.reorder(name, *others, *run) if (*others, *run) != stage.reduction else draft
    draft, row = draft.fuse(name, run)
    draft, (steps, results) = draft.split(name, row, (lift(accumulators) * lanes,), "guard")
    draft, partial = draft.rfactor(name, results)
    draft, (_, lane) = draft.split(name, results, (lanes,))
    draft, joined = draft.rfactor(name, lane)
    return draft, Partial(partial, steps, results, joined, lane)


def reduction(draft: Draft, name: str, partial: Partial, anchor: tuple[str, Loop], lanes: int) -> Draft:
    """Keeps the partial results in registers, and reduces them to one vector and to one number at the end of the row.

    Args:
        anchor: stage of the rows, and its loop over them.
    """
    for stage in (partial.final_stage, partial.stage):
        draft = draft.set_scope(stage, "local").compute_at(stage, *anchor)
    own = (partial.steps, partial.results)
    # The loop over the row is outside, the partial results inside: their vectors are independent sums, which hide the
    # latency of an addition.
    outer = [leaf for leaf in draft.stage(partial.stage).leaves if leaf not in own]
    draft = draft.reorder(partial.stage, *outer, *own)
    draft, inner = draft.split(partial.stage, partial.results, (lanes,))
    draft = draft.in_registers(partial.stage, inner)
    (vector,) = draft.stage(partial.final_stage).reduction
    draft = draft.reorder(partial.final_stage, vector, partial.lanes).in_registers(
        partial.final_stage, (vector, partial.lanes)
    )
    return draft.vectorize(name, partial.lanes)


def rows_of_sums(draft: Draft, name: str, hardware: Hardware) -> Draft:
    """Computes a reduction by itself, row by row in parallel."""
    lanes = hardware.float_lanes
    draft, accumulators = decide_accumulators(draft, [draft.stage(name)], hardware)
    draft, partial = in_parts(draft, name, accumulators, lanes)
    draft, row = draft.fuse(name, draft.stage(name).leaves[: len(draft.stage(name).axes)])
    draft = draft.parallel(name, row)
    return reduction(draft, name, partial, (name, row), lanes)


def vectors(draft: Draft, name: str, loop: Loop, unroll: Expr | int, lanes: int) -> Draft:
    """Splits a loop into vectors, a few of them at a time."""
    draft, (_, *inner) = draft.split(name, loop, (unroll, lanes), "guard")
    return draft.in_registers(name, inner)
