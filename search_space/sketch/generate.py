"""Derivation: rules applied to every stage, consumers first, until each draft is whole."""

from __future__ import annotations

from search_space.hardware import Hardware
from search_space.schedule.state import State
from search_space.sketch.base import Draft
from search_space.sketch.rules import RULES

MAX_SKETCHES = 64


def derive(state: State, hardware: Hardware) -> tuple[list[Draft], int]:
    """All drafts for a workload's initial state, and how many were dropped at the cap of `MAX_SKETCHES`.

    A stage is offered to the rules when its consumers are done; the first rule that matches decides. Element-wise
    producers are inlined first, so that the rules see reductions directly.
    """
    drafts = [_inline(Draft("", state), hardware)]
    whole: list[Draft] = []
    while drafts:
        draft = drafts.pop(0)
        pending = [s for s in draft.state.stages if s.name not in draft.done]
        if not pending:
            whole.append(draft)
            continue
        stage = pending[-1]
        rule = next(r for r in RULES if r.matches(draft, stage, hardware))
        drafts += rule.apply(draft, stage, hardware)
    return whole[:MAX_SKETCHES], max(0, len(whole) - MAX_SKETCHES)


def _inline(draft: Draft, hardware: Hardware) -> Draft:
    rule = next(r for r in RULES if r.name == "always_inline")
    for stage in reversed(draft.state.stages):
        if rule.matches(draft, stage, hardware):
            (draft,) = rule.apply(draft, stage, hardware)
    return draft
