"""Row-wise operators (softmax, layer norm, reductions along the last axis): a row at a time, in vectors, in cache."""

from __future__ import annotations

from search_space.hardware import Hardware
from search_space.ir.expr import Expr, lift
from search_space.machines.shared.rows import row_group
from search_space.schedule.state import Stage
from search_space.schedule.steps import Annotate, ComputeAt, Fuse, Reorder, Rfactor, SetScope, Split, Step
from search_space.sketch.base import Draft, SketchRule
from search_space.sketch.tables import DecisionGroup

MAX_ACCUMULATORS = 8


class RowWise(SketchRule):
    """Rows in parallel; every stage of a row attached to it; reductions kept in vectors of partial results."""

    name = "row_wise"

    def matches(self, draft: Draft, stage: Stage, hardware: Hardware) -> bool:
        return row_group(draft, stage) is not None

    def apply(self, draft: Draft, stage: Stage, hardware: Hardware) -> list[Draft]:
        group = row_group(draft, stage)
        assert group is not None
        lanes = hardware.float_lanes
        rows = len(next(s for s in group if s.reducer is not None).axes)
        draft, (accumulators,) = draft.decide(
            DecisionGroup.of("accumulators", ("accumulators",), [(u,) for u in (1, 2, 4, MAX_ACCUMULATORS)])
        )
        draft, (unroll,) = draft.decide(DecisionGroup.of("unroll", ("unroll",), [(u,) for u in (1, 2, 4, 8)]))
        if stage.reducer is not None:  # rfactor comes before the loops are fused or annotated
            draft = self.factored(draft, stage.name, accumulators, lanes)
        draft, row = self.rows(draft, stage, rows)
        for member in reversed(group):
            if member.name != stage.name:
                draft = draft.apply(ComputeAt(member.name, stage.name, row))
            if member.reducer is not None:
                if member.name != stage.name:
                    draft = self.factored(draft, member.name, accumulators, lanes)
                draft = self.reduction(draft, member.name, stage.name, row, lanes)
            elif len(member.axes) == rows and member.name != stage.name:
                draft = draft.apply(SetScope(member.name, "local"))
            elif len(member.axes) > rows:
                draft = self.vectors(draft, member.name, member.axes[-1].name, unroll, lanes)
        return [draft.variant("rows").finish(*(s.name for s in draft.state.stages))]

    def rows(self, draft: Draft, stage: Stage, count: int) -> tuple[Draft, str]:
        axes = tuple(a.name for a in stage.axes[:count])
        steps: list[Step] = [Fuse(stage.name, axes)] if count > 1 else []
        row = "_".join(axes)
        return draft.apply(*steps, Annotate(stage.name, row, "parallel")), row

    def vectors(self, draft: Draft, name: str, axis: str, unroll: Expr | int, lanes: int) -> Draft:
        return draft.apply(
            Split(name, axis, (unroll, lanes), "guard"),
            Annotate(name, f"{axis}.1", "unroll"),
            Annotate(name, f"{axis}.2", "vectorize"),
        )

    def factored(self, draft: Draft, name: str, accumulators: Expr | int, lanes: int) -> Draft:
        """`accumulators` vectors of partial results over the row."""
        axis = draft.state.stage(name).reduce_axes[0].name
        return draft.apply(Split(name, axis, (lift(accumulators) * lanes,), "guard"), Rfactor(name, f"{axis}.1"))

    def reduction(self, draft: Draft, name: str, output: str, row: str, lanes: int) -> Draft:
        """Keeps the partial results in registers, and reduces them across the lanes at the end of the row."""
        inner = draft.state.stage(name).reduce_axes[0].name
        axis = inner.removesuffix(".1")
        stages = draft.state.stages
        partial = stages[stages.index(draft.state.stage(name)) - 1].name
        loops = draft.state.stage(partial).leaves
        spatial = tuple(leaf for leaf in loops if leaf not in (f"{axis}.0", inner))
        draft = draft.apply(
            SetScope(partial, "local"),
            ComputeAt(partial, output, row) if name != output else ComputeAt(partial, name, row),
            Reorder(partial, (*spatial, f"{axis}.0", inner)),
            Split(partial, inner, (lanes,), "exact"),
            Annotate(partial, f"{inner}.0", "unroll"),
            Annotate(partial, f"{inner}.1", "vectorize"),
            Split(name, inner, (lanes,), "exact"),
            Annotate(name, f"{inner}.0", "unroll"),
            Annotate(name, f"{inner}.1", "vectorize"),
        )
        return draft if name == output else draft.apply(SetScope(name, "local"))
