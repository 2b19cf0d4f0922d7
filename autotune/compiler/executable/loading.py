"""Loading of a compiled network: its manifest names the class that runs it.

network = autotune.load("runs/resnet50/network")
logits = network(image)

A process that only does this imports NumPy, and otherwise only the standard library.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from targets import registry
from targets.executable import Executable
from targets.manifest import MANIFEST, ExecutableError, read_manifest, read_sealed

APPLICATIONS = {"language": "autotune.language.api:load"}
"""Functions that load folders of several entry points, called like `load`, by the kind of the manifest."""


def load(folder: str | os.PathLike[str], threads: int | None = None, mapped: bool = False) -> Executable:
    """Loads the network in a folder that `autotune compile`, `autotune run` or `save` wrote.

    A folder that a language model was saved to yields a `LanguageModel`; `autotune.language.load` does the same, and
    has this type.

    Args:
        folder: folder of the network.
        threads: number of threads that kernels of a CPU run on; None: as many as they were chosen for.
        mapped: whether weights are pages of the file, which processes share, if the target can run on those.

    Raises:
        ExecutableError: the folder has no network, or one that this machine cannot run.
    """
    path = Path(folder)
    data = read_sealed(path)
    if application := APPLICATIONS.get(str(data.get("kind"))):
        module, _, name = application.partition(":")
        loaded: Executable = getattr(import_module(module), name)(folder, threads, mapped)
        return loaded
    return _find_class(path, data)(folder, threads, mapped)


def load_manifest(folder: Path) -> dict[str, Any]:
    """Reads the manifest of a network, whether or not this machine can run it.

    Raises:
        ExecutableError: there is no manifest, or it has illegal values.
    """
    return read_manifest(folder, _find_class(folder, read_sealed(folder)).format)


def _find_class(folder: Path, manifest: Mapping[str, Any]) -> type[Executable]:
    passed = []
    for each in kinds(str(manifest.get("target"))):
        if each.format.kind == manifest.get("kind"):
            return each
        passed.append(each.format.kind)
    raise ExecutableError(
        f"{folder / MANIFEST}: `kind` must be {' or '.join([*passed, *APPLICATIONS])}, "
        f"but got kind={manifest.get('kind')!r:.80}"
    )


def kinds(target: str = "") -> Iterator[type[Executable]]:
    """Lists the classes of all executables, that of `target` first, so that the others are imported only if needed."""
    family, passed = target.partition(":")[0], set()
    for name in sorted(registry.TARGETS, key=lambda name: name != family):
        kind = registry.find_executable_class(name)
        if kind is not None and kind not in passed:
            passed.add(kind)
            yield kind
    from autotune.compiler.executable.stepwise import StepwiseExecutable

    yield StepwiseExecutable
