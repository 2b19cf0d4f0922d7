"""Choices and code of kernels in the cache, each under all that it depends on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from autotune.cache.code import code_digest
from autotune.cache.linked import Linked
from autotune.cache.store import Store
from autotune.schedule import Kernel, OpenKernel, Schedule
from search_space.machines.registry import rules_of
from search_space.operators import LIBRARY
from search_space.schedule.trace import Trace
from search_space.workloads import Workload
from targets.base import Module, Target

_DIGITS = 24
"""Of a digest in the name of a kernel: no two kernels of a network have the same ones."""


def symbol_of(
    workload: Workload, schedule: Schedule, pitches: Mapping[str, tuple[int, ...]], target: Target
) -> str | None:
    """Name of a kernel by all that its code depends on, so that networks share it; None where that is not known."""
    key = _key("symbol", workload, target, _of_code(schedule, pitches))
    return None if key is None else f"kernel_{key[:_DIGITS]}"


def symbol_of_open(kernel: OpenKernel, target: Target) -> str | None:
    """The same of a kernel whose sizes are open."""
    if target.identity is None:
        return None
    return f"kernel_{_digest('symbol', target, {**kernel.to_json(), 'name': ''})[:_DIGITS]}"


class KernelCache:
    """What was chosen and built before, of targets that say what their code depends on (`Target.identity`).

    Args:
        store: where it is kept.
    """

    def __init__(self, store: Store) -> None:
        self.store = store

    def choice_key(self, workload: Workload, target: Target, depends: Mapping[str, Any]) -> str | None:
        """Key of what is chosen without trials; None where it is not kept, as what is of this process alone takes part.

        Args:
            workload: what is computed.
            target: for which.
            depends: what else the choice goes by.
        """
        own = [rule for rule in rules_of(target.hardware.kind) if not type(rule).__module__.startswith("search_space.")]
        if own:
            return None
        return _key("choice", workload, target, {"hardware": target.hardware.to_json(), **depends})

    def choice(self, key: str) -> tuple[Schedule, float] | None:
        """A schedule that was chosen, and its seconds by the roofline."""
        data = self.store.get(key)
        if data is None:
            return None
        found = json.loads(data)
        return Schedule(found["algorithm"], Trace.from_json(found["trace"])), found["seconds"]

    def keep_choice(self, key: str, schedule: Schedule, seconds: float) -> None:
        """Keeps a choice for `choice`."""
        found = {"algorithm": schedule.algorithm, "trace": schedule.trace.to_json(), "seconds": seconds}
        self.store.put(key, json.dumps(found).encode())

    def module_key(self, kernel: Kernel | OpenKernel, target: Target) -> str | None:
        """Key of a built kernel; None where it is not kept.

        Args:
            kernel: all that its code depends on, its name included, which is a symbol there.
            target: for which it is built.
        """
        if isinstance(kernel, OpenKernel):
            return None if target.identity is None else _digest("module", target, kernel.to_json())
        depends = {**_of_code(kernel.schedule, kernel.pitches), "name": kernel.name}
        return _key("module", kernel.workload, target, depends)

    def module(self, key: str) -> Module | None:
        """A kernel that was built."""
        data = self.store.get(key)
        return None if data is None else Module.from_bytes(data)

    def keep_module(self, key: str, module: Module) -> None:
        """Keeps a kernel for `module`."""
        self.store.put(key, module.to_bytes())

    def linked(self, name: str, modules: Sequence[str]) -> Linked | None:
        """What kernels of a network of that name were linked to, last of all; `modules` are their keys, in order."""
        data = self.store.get(_together(name, modules))
        return None if data is None else Linked.from_bytes(data)

    def keep_linked(self, name: str, modules: Sequence[str], linked: Linked) -> None:
        """Keeps it for `linked`."""
        self.store.put(_together(name, modules), linked.to_bytes())


def _together(name: str, modules: Sequence[str]) -> str:
    return hashlib.sha256(json.dumps(["linked", name, *modules]).encode()).hexdigest()


def _of_code(schedule: Schedule, pitches: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    trace = schedule.trace.to_json()
    return {"algorithm": schedule.algorithm, "trace": trace, "pitches": sorted(pitches.items())}


def _key(what: str, workload: Workload, target: Target, depends: Mapping[str, Any]) -> str | None:
    if target.identity is None or workload.anchor.operator not in LIBRARY:
        return None
    return _digest(what, target, {"workload": workload.to_json(), "depends": depends})


def _digest(what: str, target: Target, document: Mapping[str, Any]) -> str:
    """Of what something was made of, the code of this package and the target included."""
    document = {"what": what, "code": code_digest(), "target": [target.name, target.identity], **document}
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
