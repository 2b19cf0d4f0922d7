"""The fallback: vectors along the last axis, the rest in parallel. Right for element-wise outputs, legal for all."""

from __future__ import annotations

from search_space.hardware import Hardware
from search_space.schedule.state import Stage
from search_space.schedule.steps import Annotate, Fuse, Split
from search_space.sketch.base import Draft, SketchRule
from search_space.sketch.tables import DecisionGroup


class Elementwise(SketchRule):
    """Fuses a stage's spatial loops, splits off vectors, runs chunks of vectors in parallel."""

    name = "elementwise"

    def matches(self, draft: Draft, stage: Stage, hardware: Hardware) -> bool:
        return True

    def apply(self, draft: Draft, stage: Stage, hardware: Hardware) -> list[Draft]:
        lanes, name = hardware.float_lanes, stage.name
        axes = [a.name for a in stage.axes]
        if not axes:
            return [draft.finish(name)]
        fused = axes[0]
        if len(axes) > 1:
            draft = draft.apply(Fuse(name, tuple(axes)))
            fused = "_".join(axes)
        if stage.reducer is not None:  # the reduce loops stay inside; scalars along the fused loop
            return [draft.apply(Annotate(name, fused, "parallel")).finish(name)]
        elements = 1
        for a in stage.axes:
            elements *= int(a.extent.value)
        rows = [(c, u) for c in (1, 4, 16, 64, 256) for u in (1, 2, 4) if c == 1 or c * u * lanes <= elements]
        draft, (chunk, unroll) = draft.decide(
            DecisionGroup.of(f"{name}.chunk", (f"{name}.chunk", f"{name}.unroll"), rows)
        )
        draft = draft.apply(
            Split(name, fused, (chunk, unroll, lanes), "guard"),
            Annotate(name, f"{fused}.0", "parallel"),
            Annotate(name, f"{fused}.2", "unroll"),
            Annotate(name, f"{fused}.3", "vectorize"),
        )
        return [draft.finish(name)]
