"""Targets by name. A new one is a folder and a line here."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Protocol

from targets.base import Target

if TYPE_CHECKING:  # of no use where nothing but kernels is run
    from targets.executable import Executable

TARGETS: dict[str, str] = {
    "cpu": "targets.cpu.target:get_target",
    "c": "targets.c.target:get_target",
    "cuda": "targets.cuda.target:get_target",
    "vta": "targets.vta.target:get_target",
}


class UnknownTarget(ValueError):
    """A target name that is not registered."""


class Design(Protocol):
    """A machine that is described by an object, such as `targets.vta.hardware.VtaHardware`."""

    @property
    def spec(self) -> str:
        """The name from which `get` makes its target in any process."""


def target_name(target: str | Design) -> str:
    """Returns the name of a target that is given by its name or by its design.

    Raises:
        ValueError: it is neither, or a design that cannot be named.
    """
    spec = target if isinstance(target, str) else getattr(target, "spec", None)
    if not isinstance(spec, str):
        raise ValueError(f"`target` must be a name, or a design such as VtaHardware, but got target={target!r}")
    return spec


def get(spec: str) -> Target:
    """Returns the target `name` or `name:variant`, made once a process.

    Raises:
        UnknownTarget: no target of that name, or a variant of one that has none.
        ValueError: a variant that its target does not know.
    """
    module, attribute = _home(spec)
    _, colon, variant = spec.partition(":")
    if colon and (not variant or variant.endswith(":")):
        raise UnknownTarget(f"`target` must have a variant behind its colon, or no colon, but got target={spec!r}")
    make: Callable[[str], Target] = getattr(importlib.import_module(module), attribute)
    made = make(spec)
    if made.name != spec:
        raise UnknownTarget(f"`target` {made.name} must stand alone, as it has no variants, but got target={spec!r}")
    return made


def find_executable_class(spec: str) -> type[Executable] | None:
    """Returns the class that loads the networks of a target, or None if networks do not run on the target alone.

    It is `EXECUTABLE` of the module `executable` beside the target's own. That module imports NumPy and no compiler,
    and the target's own is not imported, as processes that only run networks need neither.

    Raises:
        UnknownTarget: no target of that name.
    """
    module = ".".join([*_home(spec)[0].split(".")[:-1], "executable"])
    if find_spec(module) is None:
        return None
    found: type[Executable] = importlib.import_module(module).EXECUTABLE
    return found


def _home(spec: str) -> tuple[str, str]:
    """Returns the module and the attribute that make a target."""
    name = spec.partition(":")[0]
    if name not in TARGETS:
        raise UnknownTarget(f"`target` must be one of {', '.join(TARGETS)}, but got target={spec!r}")
    module, _, attribute = TARGETS[name].partition(":")
    return module, attribute
