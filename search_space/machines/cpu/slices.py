"""Converted rows of a product's left factor (tag `slices`): computed before the product, few of them by one thread.

For few rows, starting other threads would take longer than the computation.
"""

from __future__ import annotations

from math import prod

from search_space.hardware import Hardware
from search_space.machines.cpu.rowwise import in_parts, reduction
from search_space.schedule.state import Stage
from search_space.sketch.base import Draft, SketchRule
from search_space.sketch.tables import ceildiv
from search_space.tags import Tag

AT_ONCE = 4
"""Vectors of partial results."""
MOST_UNROLLED = 4
"""Greatest number of neighbouring vectors that are unrolled."""
FEW_ROWS = 8
"""Rows that one thread computes."""


class SlicesInFront(SketchRule):
    """Stages tagged `slices`: whole, at the root, in vectors along the last axis, many rows in parallel."""

    name = "slices_in_front"

    def matches(self, draft: Draft, stage: Stage, hardware: Hardware) -> bool:
        return stage.tag == Tag.SLICES and stage.name not in draft.state.outputs

    def apply(self, draft: Draft, stage: Stage, hardware: Hardware) -> list[Draft]:
        name, lanes = stage.name, hardware.float_lanes
        many = int(stage.axes[0].extent.value) > FEW_ROWS
        if stage.reducer is None:
            return [self.in_vectors(draft, stage, many, lanes).finish(name)]
        length = prod(int(axis.extent.value) for axis in stage.reduce_axes)
        draft, partial = in_parts(draft, name, min(AT_ONCE, ceildiv(length, lanes)), lanes)
        draft, row = draft.fuse(name, draft.stage(name).leaves[: len(stage.axes)])
        draft = reduction(draft, name, partial, (name, row), lanes)
        return [draft.finish(name, partial.stage, partial.final_stage)]

    def in_vectors(self, draft: Draft, stage: Stage, many: bool, lanes: int) -> Draft:
        """Vectorises a stage without reduction: along both axes fused if it has two, else along the last one."""
        name, axes = stage.name, stage.spatial
        if len(axes) == 1:
            return draft
        if len(axes) == 2:
            draft, fused = draft.fuse(name, axes)
            draft, (axis, vector) = draft.split(name, fused, (lanes,), "guard")
            return (draft.parallel(name, axis) if many else draft).vectorize(name, vector)
        if int(stage.axes[-2].extent.value) <= MOST_UNROLLED:
            draft = draft.unroll(name, axes[-2])
        return (draft.parallel(name, axes[0]) if many else draft).vectorize(name, axes[-1])
