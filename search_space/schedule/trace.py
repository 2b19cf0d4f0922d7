"""Traces: a schedule as the tuple of its steps. Cache key, record, mutation target and replay script in one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from search_space.schedule.state import State
from search_space.schedule.steps import Step, step_from_json


@dataclass(frozen=True)
class Trace:
    """Steps in the order they are applied; symbolic if they contain decision variables."""

    steps: tuple[Step, ...] = ()

    def apply(self, state: State) -> State:
        """Returns the state after every step.

        Raises:
            ScheduleError: a step that is illegal at its position.
        """
        for step in self.steps:
            state = step.apply(state)
        return state

    def then(self, *steps: Step) -> Trace:
        """Appends `steps` to the trace."""
        return Trace(self.steps + steps)

    def substitute(self, values: Mapping[str, int]) -> Trace:
        """Returns the concrete trace of a candidate."""
        return Trace(tuple(s.substitute(values) for s in self.steps))

    def to_json(self) -> list[dict[str, Any]]:
        return [s.to_json() for s in self.steps]

    @staticmethod
    def from_json(data: Iterable[Mapping[str, Any]]) -> Trace:
        """Reads the trace that `to_json` wrote.

        Raises:
            ScheduleError: an unknown or incomplete step.
        """
        return Trace(tuple(step_from_json(d) for d in data))

    @property
    def key(self) -> str:
        """SHA-256 of the canonical JSON: the same over versions and processes."""
        return compute_key(self.to_json())

    def __str__(self) -> str:
        lines = []
        for step in self.steps:
            arguments = ", ".join(f"{k}={_show(v)}" for k, v in vars(step).items())
            lines.append(f"{step.name}({arguments})")
        return "\n".join(lines)


def compute_key(data: Any) -> str:
    """Computes the SHA-256 of the canonical JSON of plain data; for the data of a trace it is the trace's key."""
    return hashlib.sha256(json.dumps(data, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _show(value: Any) -> str:
    if isinstance(value, tuple):
        return "[" + ", ".join(_show(v) for v in value) + "]"
    return str(value)
