"""Sums of an even number of products: for machines with an instruction for pairs of them."""

from __future__ import annotations

from search_space.hardware import Hardware
from search_space.machines.shared.instructions import matching_intrinsic
from search_space.schedule.state import Stage
from search_space.sketch.base import Draft, SketchRule
from search_space.tags import Tag


class PairedSums(SketchRule):
    """No sketch for stages tagged `pairs` without an instruction for them: the plain sum is as good, and simpler."""

    name = "paired_sums"

    def matches(self, draft: Draft, stage: Stage, hardware: Hardware) -> bool:
        open_sums = (s for s in draft.state.stages if s.tag == Tag.PAIRS and s.name not in draft.finished_stages)
        return any(matching_intrinsic(draft, s, hardware) is None for s in open_sums)

    def apply(self, draft: Draft, stage: Stage, hardware: Hardware) -> list[Draft]:
        return []
