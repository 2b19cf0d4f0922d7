"""Loading a compiled network: its folder says who runs it.

network = autotune.load("runs/resnet50/network")
logits = network(image)

A process that only does this imports NumPy and nothing else that is not Python's own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from targets import registry
from targets.executable import Executable
from targets.manifest import other_schema, parsed, read_manifest


def load(folder: str | os.PathLike[str], threads: int | None = None, mapped: bool = False) -> Executable:
    """The network in a folder that `autotune compile` or `autotune run` wrote; for the arguments see `Executable`.

    Raises:
        ExecutableError: the folder holds no network, or one that this machine cannot run.
    """
    return _kind_of(Path(folder))(folder, threads, mapped)


def manifest_of(folder: Path) -> dict[str, Any]:
    """The manifest of a network, whether or not this machine can run it.

    Raises:
        ExecutableError: there is none, or one that says what cannot be.
    """
    return read_manifest(folder, _kind_of(folder).format)


def _kind_of(folder: Path) -> type[Executable]:
    data, passed = parsed(folder), []
    for kind in kinds(str(data.get("target"))):
        if kind.format.schema == data.get("schema"):
            return kind
        passed.append(kind.format)
    raise other_schema(folder, data, passed)


def kinds(target: str = "") -> Iterator[type[Executable]]:
    """Classes of all executables, that of `target` first: those after it need not be imported where it is wanted."""
    family, passed = target.partition(":")[0], set()
    for name in sorted(registry.TARGETS, key=lambda name: name != family):
        kind = registry.executable_of(name)
        if kind is not None and kind not in passed:
            passed.add(kind)
            yield kind
    from autotune.executable.stepwise import StepwiseExecutable

    yield StepwiseExecutable
