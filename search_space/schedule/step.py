"""The base of schedule steps, and the guards that steps share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

from search_space.ir.expr import Expr, substitute
from search_space.schedule.errors import ScheduleError
from search_space.schedule.state import (
    Stage,
    State,
)

Factor = int | Expr


@dataclass(frozen=True)
class Step:
    """Base of the steps; `name` is the step's name in a trace."""

    name: ClassVar[str] = ""

    def apply(self, state: State) -> State:
        """Returns the state after this step.

        Raises:
            ScheduleError: a precondition does not hold.
        """
        raise NotImplementedError

    def to_json(self) -> dict[str, Any]:
        """Returns plain data, `{"step": name, field: value}`; they must be numbers, without decision variables."""
        return {"step": self.name, **{f.name: _plain(getattr(self, f.name)) for f in fields(self)}}

    def substitute(self, values: Mapping[str, int]) -> Step:
        """Replaces decision variables in the step by numbers."""
        done = {name: _concrete(value, values) for name, value in vars(self).items()}
        changed = {name: value for name, value in done.items() if value is not getattr(self, name)}
        return replace(self, **changed) if changed else self


def _plain(value: Any) -> Any:
    if isinstance(value, Expr):
        if not value.is_const:
            raise ScheduleError(f"a recorded step must hold numbers, but got the decision variable {value}")
        return value.value
    return [_plain(v) for v in value] if isinstance(value, tuple) else value


def _concrete(value: Any, values: Mapping[str, int]) -> Any:
    if isinstance(value, Expr):
        done = substitute(value, values)
        return done.value if done.is_const else done
    if not isinstance(value, tuple):
        return value
    parts = tuple(_concrete(v, values) for v in value)
    return parts if any(new is not old for new, old in zip(parts, value, strict=True)) else value


def position(stage: Stage, leaf: str, field_name: str = "axis") -> int:
    if leaf not in stage.leaves:
        raise ScheduleError(
            f"`{field_name}` must be a loop of {stage.name} ({', '.join(stage.leaves)}), but got {field_name}={leaf!r}"
        )
    return stage.leaves.index(leaf)


def check_unused(state: State, stage: Stage, leaf: str) -> None:
    """Guards against replacing a loop that is annotated, or that other data refer to."""
    if leaf in stage.kinds:
        raise ScheduleError(
            f"`axis` must be split and fused before it is annotated, but {stage.name}.{leaf} is {stage.kinds[leaf]}"
        )
    if (stage.tensorization and stage.tensorization[0] == leaf) or any(axis == leaf for axis, _, _ in stage.pragmas):
        raise ScheduleError(f"`axis` must be split and fused before its pragmas are set, but got {stage.name}.{leaf}")
    check_nothing_attached(state, stage, leaf)


def check_nothing_attached(state: State, stage: Stage, leaf: str | None = None) -> None:
    for other in state.stages:
        at = other.attach
        if at.kind == "at" and at.stage == stage.name and leaf in (None, at.leaf):
            raise ScheduleError(
                f"loops must be transformed before other stages are computed at them, but {other.name} is computed at "
                f"{stage.name}.{at.leaf}"
            )


def check_new_leaves(stage: Stage, names: tuple[str, ...]) -> None:
    taken = {*stage.leaves, *(a.name for a in (*stage.axes, *stage.reduce_axes))}
    clash = [n for n in names if n in taken]
    if clash:
        raise ScheduleError(f"new loops must have names of their own, but {stage.name} has {clash[0]} already")


def check_untouched(state: State, stage: Stage, step: str) -> None:
    """Guards a step that gives a stage new loops."""
    if stage.relations and step == "cache_write":
        raise ScheduleError(f"`{step}` must come before loops are split or fused, but {stage.name} has some")
    if stage.kinds or stage.tensorization or stage.pragmas:
        raise ScheduleError(f"`{step}` must come before loops are annotated, but {stage.name} has some")
    check_nothing_attached(state, stage)


def root_extent(stage: Stage, leaf: str) -> Expr | None:
    """Returns the extent of an untransformed axis of a root stage; None if bounds are inferred only in lowering."""
    if stage.attach.kind != "root":
        return None
    return next((a.extent for a in (*stage.axes, *stage.reduce_axes) if a.name == leaf), None)


def fresh_name(state: State, name: str) -> str:
    taken = {s.name for s in state.stages} | {i.name for i in state.inputs}
    unique, count = name, 1
    while unique in taken:
        unique, count = f"{name}{count}", count + 1
    return unique
