"""Symbolic traces as plain data: schedules whose numbers are decision variables, or arithmetic over them.

A step is `{"step": name, field: value}` as in a concrete trace. Each number may be replaced by `{"var": name}` or
`{"op": name, "of": [operand, ...]}`, with integers or such objects as operands.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from costmodel.dataset.errors import DatasetError
from search_space.ir import expr as ir
from search_space.ir.expr import Expr
from search_space.schedule.errors import ScheduleError
from search_space.schedule.steps import STEPS, Step
from search_space.schedule.trace import Trace


def to_text(trace: Trace) -> str:
    """Formats a trace, symbolic or not, as JSON text."""
    return json.dumps([_step(step) for step in trace.steps], separators=(",", ":"))


def from_text(text: str) -> Trace:
    """Parses the text of a trace that `to_text` wrote: the same steps over the same expressions.

    Raises:
        DatasetError: the text is not a symbolic trace.
    """
    try:
        return Trace(tuple(_read_step(item) for item in json.loads(text)))
    except (ValueError, TypeError, KeyError, ScheduleError) as error:
        raise DatasetError(f"a sketch must hold a symbolic trace, but got {text[:60]!r} ({error})") from None


def _step(step: Step) -> dict[str, Any]:
    return {"step": step.name, **{field.name: _plain(getattr(step, field.name)) for field in fields(step)}}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if not isinstance(value, Expr):
        return value
    if value.is_const:
        return value.value
    if value.op == "var":
        return {"var": value.args[0]}
    return {"op": value.op, "of": [_plain(operand) for operand in value.args]}


def _read_step(data: Mapping[str, Any]) -> Step:
    kind = STEPS[data["step"]]
    return kind(**{name: _value(value) for name, value in data.items() if name != "step"})


def _value(data: Any) -> Any:
    if isinstance(data, list):
        return tuple(_value(item) for item in data)
    return _expression(data) if isinstance(data, dict) else data


def _expression(data: Any) -> Expr:
    if isinstance(data, int):
        return ir.const(data)
    if "var" in data:
        return ir.var(data["var"])
    return ir.raw(data["op"], ir.INT, *(_expression(item) for item in data["of"]))
