"""Derivation: rules are applied to every stage, consumers first, until each draft is complete."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from search_space.hardware import Hardware
from search_space.machines.base import Machine
from search_space.machines.registry import get_machine
from search_space.schedule.errors import ScheduleError
from search_space.schedule.state import State
from search_space.sketch.base import Draft

MAX_SKETCHES = 64
"""Greatest number of sketches of an algorithm; further ones are counted and dropped."""


@dataclass(frozen=True)
class SketchDerivation:
    """The result of deriving sketches from a definition.

    Attributes:
        drafts: complete schedules.
        dropped_count: number of further schedules, beyond the cap of `MAX_SKETCHES`.
        refusals: drafts that a rule could not continue, and why.
        applied_rules: names of the rules that decided a stage.
    """

    drafts: Sequence[Draft]
    dropped_count: int
    refusals: Mapping[str, str]
    applied_rules: frozenset[str]


def derive(state: State, hardware: Hardware) -> SketchDerivation:
    """Derives all drafts from a workload's initial state.

    A stage is offered to the rules of the machine's kind when its consumers are done; the first that matches decides.
    Element-wise producers are inlined first, so that the rules see reductions directly.
    """
    machine = get_machine(hardware.kind)
    start = _inline(Draft(state), machine, hardware)
    drafts = [start, *machine.starts(start, hardware)]
    complete: list[Draft] = []
    refused: dict[str, str] = {}
    applied: set[str] = set()
    while drafts:
        draft = drafts.pop(0)
        pending = [s for s in draft.state.stages if s.name not in draft.finished_stages]
        if not pending:
            complete.append(draft)
            continue
        stage = pending[-1]
        rule = next(r for r in machine.rules if r.matches(draft, stage, hardware))
        applied.add(rule.name)
        try:
            drafts += rule.apply(draft, stage, hardware)
        except ScheduleError as error:
            refused[draft.variant(rule.name).name] = str(error)
    return SketchDerivation(complete[:MAX_SKETCHES], max(0, len(complete) - MAX_SKETCHES), refused, frozenset(applied))


def _inline(draft: Draft, machine: Machine, hardware: Hardware) -> Draft:
    for rule in [r for r in machine.rules if r.name == "always_inline"]:
        for stage in reversed(draft.state.stages):
            if rule.matches(draft, stage, hardware):
                (draft,) = rule.apply(draft, stage, hardware)
    return draft
