"""Always inline: an element-wise stage that is not an output costs nothing inside its consumer."""

from __future__ import annotations

from search_space.hardware import Hardware
from search_space.ir.expr import walk
from search_space.schedule.state import Stage
from search_space.schedule.steps import ComputeInline
from search_space.sketch.base import Draft, SketchRule


class AlwaysInline(SketchRule):
    """Inlines cheap element-wise stages; one with a math function is inlined only into a single consumer."""

    name = "always_inline"

    def matches(self, draft: Draft, stage: Stage, hardware: Hardware) -> bool:
        if stage.reducer is not None or stage.name in draft.state.outputs or stage.tag == "pad":
            return False
        costly = any(n.op in ("call", "div") for n in walk(stage.body))
        return not costly or len(draft.state.consumers(stage.name)) == 1

    def apply(self, draft: Draft, stage: Stage, hardware: Hardware) -> list[Draft]:
        return [draft.apply(ComputeInline(stage.name)).finish(stage.name)]
