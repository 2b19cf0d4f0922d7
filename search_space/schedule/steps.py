"""Schedule steps by name: frozen data, each a pure function from state to state with its guards first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from search_space.schedule.errors import ScheduleError
from search_space.schedule.loop_steps import Annotate, Fuse, Pragma, Reorder, Split, Tensorize
from search_space.schedule.stage_steps import (
    CacheRead,
    CacheWrite,
    ComputeAt,
    ComputeInline,
    Pack,
    Relayout,
    Rfactor,
    SetScope,
)
from search_space.schedule.step import Step

STEPS: dict[str, type[Step]] = {
    cls.name: cls
    for cls in (
        Split,
        Fuse,
        Reorder,
        Annotate,
        ComputeAt,
        ComputeInline,
        SetScope,
        CacheWrite,
        CacheRead,
        Rfactor,
        Relayout,
        Tensorize,
        Pack,
        Pragma,
    )
}


def step_from_json(data: Mapping[str, Any]) -> Step:
    """The step a trace entry describes.

    Raises:
        ScheduleError: an unknown step, or fields that are not the step's own.
    """
    kind = data.get("step")
    if kind not in STEPS:
        raise ScheduleError(f"`step` must be one of {', '.join(STEPS)}, but got step={kind!r}")
    cls = STEPS[kind]
    wanted = {f.name for f in fields(cls)}
    given = {k: _frozen(v) for k, v in data.items() if k != "step"}
    if set(given) != wanted:
        raise ScheduleError(f"a {kind} step must have {sorted(wanted)}, but got {sorted(given)}")
    return cls(**given)


def _frozen(value: Any) -> Any:
    return tuple(_frozen(v) for v in value) if isinstance(value, list) else value


__all__ = [
    "Annotate",
    "CacheRead",
    "CacheWrite",
    "ComputeAt",
    "ComputeInline",
    "Fuse",
    "Pack",
    "Pragma",
    "Relayout",
    "Reorder",
    "Rfactor",
    "SetScope",
    "Split",
    "Tensorize",
    "STEPS",
    "Step",
    "step_from_json",
]
