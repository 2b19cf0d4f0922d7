"""What a product is computed from in place of its few rows of data: made in front of it, by one thread.

It is so little that starting others would take longer than making it.
"""

from __future__ import annotations

from math import prod

from search_space.hardware import Hardware
from search_space.machines.cpu.rowwise import in_parts, reduction
from search_space.schedule.state import Stage
from search_space.sketch.base import Draft, SketchRule
from search_space.sketch.tables import ceildiv
from search_space.tags import SLICES

AT_ONCE = 4
"""Vectors of partial results."""


class SlicesInFront(SketchRule):
    """Stages tagged `slices`: whole, at the root, in vectors along the last axis."""

    name = "slices_in_front"

    def matches(self, draft: Draft, stage: Stage, hardware: Hardware) -> bool:
        return stage.tag == SLICES and stage.name not in draft.state.outputs

    def apply(self, draft: Draft, stage: Stage, hardware: Hardware) -> list[Draft]:
        name, lanes = stage.name, hardware.float_lanes
        if stage.reducer is None:
            if len(stage.axes) > 1:
                draft = draft.unroll(name, stage.spatial[-2]).vectorize(name, stage.spatial[-1])
            return [draft.finish(name)]
        length = prod(int(axis.extent.value) for axis in stage.reduce_axes)
        draft, partial = in_parts(draft, name, min(AT_ONCE, ceildiv(length, lanes)), lanes)
        draft, row = draft.fuse(name, draft.stage(name).leaves[: len(stage.axes)])
        draft = reduction(draft, name, partial, (name, row), lanes)
        return [draft.finish(name, partial.stage, partial.joined)]
