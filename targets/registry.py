"""Targets by name. A new one is a folder and a line here."""

from __future__ import annotations

import importlib
from collections.abc import Callable

from targets.base import Target

TARGETS: dict[str, str] = {
    "cpu": "targets.cpu.target:get_target",
    "cuda": "targets.cuda.target:get_target",
    "vta": "targets.vta.target:get_target",
}


class UnknownTarget(ValueError):
    """A target name that is not registered."""


def get(spec: str) -> Target:
    """The target `name` or `name:variant`, made once a process.

    Raises:
        UnknownTarget: no target of that name.
    """
    name = spec.partition(":")[0]
    if name not in TARGETS:
        raise UnknownTarget(f"`target` must be one of {', '.join(TARGETS)}, but got target={spec!r}")
    module, _, attribute = TARGETS[name].partition(":")
    make: Callable[[str], Target] = getattr(importlib.import_module(module), attribute)
    return make(spec)
