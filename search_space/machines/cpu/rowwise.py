"""Row-wise operators (softmax, layer norm, reductions along the last axis): a row at a time, in vectors, in cache."""

from __future__ import annotations

from dataclasses import dataclass

from search_space.hardware import Hardware
from search_space.ir.expr import Expr, lift
from search_space.machines.shared.rows import row_group
from search_space.schedule.builder import Loop
from search_space.schedule.state import Stage
from search_space.sketch.base import Draft, SketchRule

MAX_ACCUMULATORS = 8


class RowWise(SketchRule):
    """Rows in parallel; every stage of a row attached to it; reductions kept in vectors of partial results."""

    name = "row_wise"

    def matches(self, draft: Draft, stage: Stage, hardware: Hardware) -> bool:
        return row_group(draft, stage) is not None

    def apply(self, draft: Draft, stage: Stage, hardware: Hardware) -> list[Draft]:
        group = row_group(draft, stage)
        assert group is not None
        output, lanes = stage.name, hardware.float_lanes
        rows = len(next(s for s in group if s.reducer is not None).axes)
        draft, accumulators = draft.choose("accumulators", (1, 2, 4, MAX_ACCUMULATORS))
        draft, unroll = draft.choose("unroll", (1, 2, 4, 8))
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
                # One number a row, which the vectors of other stages have in every lane.
                draft = draft if name == output else draft.set_scope(name, "local")
            elif len(member.axes) == rows and name != output:
                draft = draft.set_scope(name, "local")
            elif len(member.axes) > rows:
                draft = vectors(draft, name, member.spatial[-1], unroll, lanes)
        return [draft.variant("rows").finish(*(s.name for s in draft.state.stages))]


@dataclass(frozen=True)
class Partial:
    """Partial results of a reduction.

    Attributes:
        stage: that computes them.
        steps: its loop over the row; results: the loop over the partial results, of which the reduction is made.
    """

    stage: str
    steps: Loop
    results: Loop


def in_parts(draft: Draft, name: str, accumulators: Expr | int, lanes: int) -> tuple[Draft, Partial]:
    """A reduction of `accumulators` vectors of partial results over the row, and these."""
    draft, (steps, results) = draft.split(name, draft.stage(name).reduced[0], (lift(accumulators) * lanes,), "guard")
    draft, partial = draft.rfactor(name, results)
    return draft, Partial(partial, steps, results)


def reduction(draft: Draft, name: str, partial: Partial, place: tuple[str, Loop], lanes: int) -> Draft:
    """Keeps the partial results in registers, and reduces them across the lanes at the end of the row.

    Args:
        place: the loop over rows, after the stage that it is one of.
    """
    own = (partial.steps, partial.results)
    # The loop over the row outside, the partial results inside: as many independent sums as there are vectors of them
    # hide the latency of one.
    spatial = [leaf for leaf in draft.stage(partial.stage).leaves if leaf not in own]
    draft = draft.set_scope(partial.stage, "local").compute_at(partial.stage, *place)
    draft = draft.reorder(partial.stage, *spatial, *own)
    for stage in (partial.stage, name):
        draft, inner = draft.split(stage, partial.results, (lanes,))
        draft = draft.in_registers(stage, inner)
    return draft


def vectors(draft: Draft, name: str, loop: Loop, unroll: Expr | int, lanes: int) -> Draft:
    """A loop in vectors, a few of them at a time."""
    draft, (_, *inner) = draft.split(name, loop, (unroll, lanes), "guard")
    return draft.in_registers(name, inner)
