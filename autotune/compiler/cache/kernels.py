"""Choices and code of kernels in the cache, each by a key of all that it depends on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from autotune.compiler.cache.code import code_digest
from autotune.compiler.cache.linked import LinkResult
from autotune.compiler.cache.store import FolderCache
from autotune.schedule import KernelSpec, OpenKernel, Schedule
from autotune.schedule_store import ScheduledWorkload
from search_space.machines.registry import get_rules
from search_space.operators import LIBRARY
from search_space.schedule.trace import Trace
from search_space.workloads import Workload
from targets.base import Module, Target

_DIGITS = 24
"""Hexadecimal digits of the digest in the name of a kernel, enough to avoid collisions within a network."""


def symbol_name(
    workload: Workload, schedule: Schedule, pitches: Mapping[str, tuple[int, ...]], target: Target
) -> str | None:
    """Names a kernel by all that its code depends on, so that networks share it; returns None if that is unknown."""
    key = _key("symbol", workload, target, _of_code(schedule, pitches))
    return None if key is None else f"kernel_{key[:_DIGITS]}"


def symbol_of_open(kernel: OpenKernel, target: Target) -> str | None:
    """Names a kernel of open sizes, see `symbol_name`."""
    if target.identity is None:
        return None
    return f"kernel_{_digest('symbol', target, {**kernel.to_json(), 'name': ''})[:_DIGITS]}"


class KernelCache:
    """Kernels that were built before, of targets whose `identity` is known, on which their code depends.

    Args:
        store: store of the entries.
    """

    def __init__(self, store: FolderCache) -> None:
        self.store = store

    def module_key(self, kernel: KernelSpec | OpenKernel, target: Target) -> str | None:
        """Returns the key of a built kernel; None if such kernels are not cached.

        Args:
            kernel: everything that its code depends on, its name included, which is a symbol there.
            target: target that it is built for.
        """
        if isinstance(kernel, OpenKernel):
            return None if target.identity is None else _digest("module", target, kernel.to_json())
        depends = {**_of_code(kernel.schedule, kernel.pitches), "name": kernel.name}
        return _key("module", kernel.workload, target, depends)

    def module(self, key: str) -> Module | None:
        """Returns the kernel that was built for a key, or None."""
        data = self.store.get(key)
        return None if data is None else Module.from_bytes(data)

    def keep_module(self, key: str, module: Module) -> None:
        """Keeps a kernel for `module`."""
        self.store.put(key, module.to_bytes())

    def get_link_result(self, name: str, modules: Sequence[str]) -> LinkResult | None:
        """Returns the last linking result of kernels of a network of that name; `modules` are their keys, in order."""
        data = self.store.get(_together(name, modules))
        return None if data is None else LinkResult.from_bytes(data)

    def keep_linked(self, name: str, modules: Sequence[str], result: LinkResult) -> None:
        """Keeps a linking result for `result`."""
        self.store.put(_together(name, modules), result.to_bytes())


class ChoiceStore:
    """Choices without trials in the cache, of targets whose `identity` is known.

    Args:
        cache: cache that holds them.
        depends: function target → everything that a choice depends on besides the workload, the target and its
            hardware, as plain data.
    """

    def __init__(self, cache: KernelCache, depends: Callable[[Target], Mapping[str, Any]]) -> None:
        self._cache, self._depends = cache, depends

    def best(self, workload: Workload, target: Target, k: int | None = 1) -> Sequence[ScheduledWorkload]:
        key = self.key(workload, target)
        data = None if key is None else self._cache.store.get(key)
        if data is None:
            return ()
        choice = json.loads(data)
        schedule = Schedule(choice["algorithm"], Trace.from_json(choice["trace"]))
        return (ScheduledWorkload(workload, target, schedule, choice["seconds"], provisional=True),)[:k]

    def add(self, record: ScheduledWorkload) -> bool:
        """Keeps a provisional schedule that another process can choose, too."""
        key = self.key(record.workload, record.target) if record.provisional else None
        if key is None:
            return False
        choice = {"algorithm": record.algorithm, "trace": record.trace.to_json(), "seconds": record.seconds}
        self._cache.store.put(key, json.dumps(choice).encode())
        return True

    def key(self, workload: Workload, target: Target) -> str | None:
        """Returns the key of a choice; None where nothing is cached, as rules of this process alone take part."""
        own = [
            rule for rule in get_rules(target.hardware.kind) if not type(rule).__module__.startswith("search_space.")
        ]
        if own:
            return None
        return _key("choice", workload, target, {"hardware": target.hardware.to_json(), **self._depends(target)})


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
    """Computes the digest of everything that an entry was made from, the code of this package included."""
    document = {"what": what, "code": code_digest(), "target": [target.name, target.identity], **document}
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
