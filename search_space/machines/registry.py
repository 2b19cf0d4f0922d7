"""Kinds of machines by name. A new one is a folder and a line here."""

from __future__ import annotations

from importlib import import_module

from search_space.machines.base import Machine
from search_space.sketch.base import SketchRule

MACHINES: dict[str, str] = {
    "cpu": "search_space.machines.cpu.machine:CPU",
    "gpu": "search_space.machines.gpu.machine:GPU",
    "accelerator": "search_space.machines.accelerator.machine:ACCELERATOR",
}
"""`Hardware.kind` -> module and name of its `Machine`, imported when it is first asked for."""

_EXTRA_RULES: list[SketchRule] = []


def get_machine(kind: str) -> Machine:
    """Returns the rules and limits of a kind of machine.

    Raises:
        ValueError: no kind has that name.
    """
    if kind not in MACHINES:
        raise ValueError(f"`machine` must be one of {', '.join(MACHINES)}, but got machine={kind!r}")
    module, _, name = MACHINES[kind].partition(":")
    found: Machine = getattr(import_module(module), name)
    return found


def get_rules(kind: str) -> list[SketchRule]:
    """Returns the sketch rules of a kind of machine, in the order in which they are tried; see `get_machine`."""
    return get_machine(kind).rules


def register_rule(rule: SketchRule, before: str | None = None, machine: str = "cpu") -> None:
    """Adds a rule of one's own to those of a kind of machine, in front of the rule named `before` or first of all.

    Raises:
        ValueError: no rule, or no kind of machine, has that name.
    """
    rules = get_rules(machine)
    names = [r.name for r in rules]
    if before is not None and before not in names:
        raise ValueError(f"`before` must be one of {', '.join(names)}, but got before={before!r}")
    rules.insert(0 if before is None else names.index(before), rule)
    _EXTRA_RULES.append(rule)


def registered_rules(kind: str) -> list[SketchRule]:
    """Lists the rules of a kind of machine that `register_rule` added, in the order in which they are tried."""
    return [rule for rule in get_rules(kind) if any(rule is added for added in _EXTRA_RULES)]


__all__ = ["MACHINES", "get_machine", "register_rule", "registered_rules", "get_rules"]
