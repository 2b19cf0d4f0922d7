"""GPUs: stages that are computed during the copy to shared memory or registers, and stages without a rule for GPUs."""

from __future__ import annotations

from search_space.hardware import Hardware
from search_space.schedule.state import Stage
from search_space.sketch.base import Draft, SketchRule
from search_space.tags import Tag


class GpuInline(SketchRule):
    """Padding and gathered windows are computed by their readers: usually by the copy to shared memory."""

    name = "gpu_inline"

    def matches(self, draft: Draft, stage: Stage, hardware: Hardware) -> bool:
        if stage.reducer is not None or stage.name in draft.state.outputs:
            return False
        return stage.tag == Tag.PAD or all(c.scope == "shared" for c in draft.state.consumers(stage.name))

    def apply(self, draft: Draft, stage: Stage, hardware: Hardware) -> list[Draft]:
        return [draft.compute_inline(stage.name).finish(stage.name)]


class GpuRefusal(SketchRule):
    """Algorithms that have no schedule for GPUs: Winograd's transforms, calls of a library, sums in pairs."""

    name = "gpu_refusal"

    def matches(self, draft: Draft, stage: Stage, hardware: Hardware) -> bool:
        return any(s.tag in (Tag.TRANSFORM, Tag.LIBRARY, Tag.PAIRS) for s in draft.state.stages)

    def apply(self, draft: Draft, stage: Stage, hardware: Hardware) -> list[Draft]:
        return []
