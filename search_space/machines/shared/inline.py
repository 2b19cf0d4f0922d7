"""Always inline: an element-wise stage that is not an output costs nothing inside its consumer."""

from __future__ import annotations

from search_space.hardware import Hardware
from search_space.ir.expr import walk
from search_space.machines.shared.instructions import matching_intrinsic
from search_space.schedule.state import Stage
from search_space.sketch.base import Draft, SketchRule
from search_space.tags import Tag

NEVER_INLINED = (Tag.PAD, Tag.TRANSFORM, Tag.FILTERS, Tag.SLICES, Tag.PANEL)
"""Tags of stages that other rules store."""


class AlwaysInline(SketchRule):
    """A rule that inlines cheap element-wise stages; a math function is inlined only if that repeats nothing.

    A stage read by a product that is an instruction of the machine is kept: instructions read memory.

    Args:
        windows_are_copied: whether windows of a convolution are gathered by the copy to faster memory.
    """

    name = "always_inline"

    def __init__(self, windows_are_copied: bool = False) -> None:
        self.windows_are_copied = windows_are_copied

    def matches(self, draft: Draft, stage: Stage, hardware: Hardware) -> bool:
        if stage.reducer is not None or stage.name in draft.state.outputs or stage.tag in NEVER_INLINED:
            return False
        if stage.name in draft.copies:
            return False
        consumers = draft.state.consumers(stage.name)
        if self.windows_are_copied and gathers(stage) and any(c.reducer is not None for c in consumers):
            return False  # computed by the copy to shared memory
        costly = any(n.op in ("call", "div") for n in walk(stage.body))
        repeated = any(len(c.axes) + len(c.reduce_axes) > len(stage.axes) for c in consumers)
        if costly and (repeated or len(consumers) > 1):
            return False
        if any(c.tensorization for c in consumers):
            return False
        inlined = draft.compute_inline(stage.name)
        sums = [c for c in consumers if c.reducer is not None]
        return all(
            matching_intrinsic(draft, s, hardware) is None or matching_intrinsic(inlined, s, hardware) for s in sums
        )

    def apply(self, draft: Draft, stage: Stage, hardware: Hardware) -> list[Draft]:
        return [draft.compute_inline(stage.name).finish(stage.name)]


def gathers(stage: Stage) -> bool:
    """Tells whether a stage reads at indices with divisions, as the gathered windows of a convolution do."""
    loads = [n for n in walk(stage.body) if n.op == "load"]
    return any(part.op in ("floordiv", "mod") for n in loads for index in n.args[1:] for part in walk(index))
