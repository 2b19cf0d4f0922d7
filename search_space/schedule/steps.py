"""Schedule steps by name: frozen data, each a pure function from state to state with its guards first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from numbers import Integral
from typing import Any

from search_space.schedule.errors import ScheduleError
from search_space.schedule.loop_steps import Annotate, Fuse, Pragma, Reorder, Split, Tensorize
from search_space.schedule.stage_steps import (
    CacheRead,
    CacheWrite,
    ComputeAt,
    ComputeInline,
    Interleave,
    Pack,
    Relayout,
    Rfactor,
    SetScope,
    Widen,
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
        Interleave,
        Widen,
        Tensorize,
        Pack,
        Pragma,
    )
}


def step_from_json(data: Mapping[str, Any]) -> Step:
    """Makes the step that a trace entry describes.

    Raises:
        ScheduleError: see `check_step`.
    """
    check_step(data)
    return STEPS[data["step"]](**{k: _freeze(v) for k, v in data.items() if k != "step"})


def check_step(data: Mapping[str, Any]) -> None:
    """Refuses a trace entry that describes no step; its legality is checked when it is applied.

    Raises:
        ScheduleError: an unknown step, or fields that are not the step's own, or values of other types than theirs.
    """
    kind = data.get("step")
    if not isinstance(kind, str) or kind not in STEPS:
        raise ScheduleError(f"`step` must be one of {', '.join(STEPS)}, but got step={kind!r:.80}")
    wanted = _FIELDS[kind]
    if data.keys() - {"step"} != wanted.keys():
        raise ScheduleError(
            f"a {kind} step must have {sorted(wanted)}, but got {sorted(data.keys() - {'step'})!r:.200}"
        )
    for name, (right, rule) in wanted.items():
        if not right(data[name]):
            raise ScheduleError(f"`{name}` of a {kind} step must be {rule}, but got {name}={data[name]!r:.80}")


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_number(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _list_check(right: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list | tuple) and all(map(right, value))


def _is_pair(value: Any) -> bool:
    return _NUMBERS(value) and len(value) == 2


_NUMBERS = _list_check(_is_number)
_KINDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "str": (_is_text, "a name"),
    "int": (_is_number, "an integer"),
    "Factor": (_is_number, "an integer"),
    "tuple[str, ...]": (_list_check(_is_text), "a list of names"),
    "tuple[int, ...]": (_NUMBERS, "a list of integers"),
    "tuple[Factor, ...]": (_NUMBERS, "a list of integers"),
    "tuple[tuple[Factor, ...], ...]": (_list_check(_NUMBERS), "a list of lists of integers"),
    "tuple[tuple[int, int], ...]": (_list_check(_is_pair), "a list of pairs of integers"),
}
"""Annotation of a step's field -> whether a value of a trace is of it, and the rule in words."""
_FIELDS = {kind: {f.name: _KINDS[str(f.type)] for f in fields(cls)} for kind, cls in STEPS.items()}


def _freeze(value: Any) -> Any:
    return tuple(_freeze(v) for v in value) if isinstance(value, list) else value


__all__ = [
    "Annotate",
    "CacheRead",
    "CacheWrite",
    "ComputeAt",
    "ComputeInline",
    "Fuse",
    "Interleave",
    "Pack",
    "Pragma",
    "Relayout",
    "Reorder",
    "Rfactor",
    "SetScope",
    "Split",
    "Tensorize",
    "Widen",
    "STEPS",
    "Step",
    "check_step",
    "step_from_json",
]
