"""Schedules without records whose choices and kernels one process of tests makes once, whichever files ask for them.

For tests of what is compiled, not of compiling: what changes code generation must not go through them.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from autotune.compiler.cache.kernels import KernelCache
from autotune.compiler.cache.store import FolderCache
from autotune.compiler.schedules import Schedules
from autotune.compiler.selection import Limits
from autotune.tuner.settings import Settings


class Memory(FolderCache):
    """Entries of this process alone, which end with it."""

    def __init__(self) -> None:
        super().__init__(Path("memory"))
        self._entries: dict[str, bytes] = {}

    def has(self, key: str) -> bool:
        return key in self._entries

    def get(self, key: str) -> bytes | None:
        return self._entries.get(key)

    def put(self, key: str, *payload: bytes | memoryview, digest: str | None = None) -> None:
        self._entries[key] = b"".join(payload)


@cache
def kernels() -> KernelCache:
    """The one of this process."""
    return KernelCache(Memory())


def make_untuned(settings: Settings, limits: Limits | None = None, device: str | None = None) -> Schedules:
    """The roofline's choices, kept with their kernels; arguments as of `Schedules`."""
    return Schedules(None, settings, limits, device, cache=kernels())
