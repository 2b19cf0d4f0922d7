"""Models that were compiled before: their executables as a whole, known by the bytes of their files.

Who finds one imports nothing that reads models, chooses schedules or builds kernels. An executable that is too large to
be kept is at least known: the cache has its schedules and kernels, so that no processes need to be started for them.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import version
from inspect import isfunction
from pathlib import Path
from typing import Any

from autotune.compiler.cache.code import code_digest
from autotune.compiler.cache.networks import NetworkCache
from autotune.compiler.cache.place import open_networks
from autotune.compiler.job import NetworkJob
from autotune.config import errors_at
from autotune.graph.types import Array
from autotune.modes import CHOOSING
from search_space.machines.registry import rules_of
from targets import registry
from targets.base import Target
from targets.executable import Executable
from targets.manifest import MANIFEST, files_of, parsed

FOLDER = "network"
"""Where in a run folder the executable lies."""

LINE = 64
"""Bytes that weights in memory have at least."""

_LIBRARIES = ("onnx", "ml_dtypes")
"""That read models, besides those that `code_digest` has."""

_INCLUDED = {"target", "trials", "seed", "measure", "network"}
"""Keys of a configuration that an executable comes of, and that are not known otherwise."""


@dataclass(frozen=True)
class Whole:
    """Where the executable of a model's file is kept.

    Attributes:
        path: of the file.
        stamp: its size and when it was written, when it was read for the key.
        key: of the entry.
        cache: where it is.
    """

    path: Path
    stamp: tuple[int, ...]
    key: str
    cache: NetworkCache

    @property
    def nbytes(self) -> int:
        """Of the file."""
        return self.stamp[0]

    @property
    def known(self) -> bool:
        """Whether the model was compiled before, be its executable kept or not."""
        return self.cache.knows(self.key)

    def load(self, folder: Path, threads: int | None, target: str) -> Executable | None:
        """The executable, its files in a folder and its weights in memory; None where it is not kept."""
        kind, files = registry.executable_of(target), self.cache.files(self.key)
        if kind is None or files is None:
            return None
        weights = self.cache.weights(json.loads(files[MANIFEST])["weights"]["sha256"])
        if weights is None:
            return None
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            (folder / name).write_bytes(data)
        return kind(folder, threads, weights=weights if len(weights) >= LINE else [weights])

    def keep_weights(self, folder: Path, parts: Sequence[Array]) -> None:
        """Keeps the weights of an executable, in parts (n,), whose manifest is in a folder; no more than it says."""
        facts = parsed(folder)["weights"]
        if len(parts) == 1:
            parts = [parts[0][: facts["nbytes"]]]
        self.cache.put_weights(facts["sha256"], parts)

    def keep(self, executable: Executable) -> None:
        """Keeps what was made of the file besides weights, unless that has been written to meanwhile."""
        try:
            same = _stamp(self.path) == self.stamp
        except OSError:  # it is gone
            same = False
        if not same:
            return
        names = [MANIFEST, *(file for file, _ in files_of(executable.manifest))]
        names.remove(executable.manifest["weights"]["file"])
        files = {name: (executable.folder / name).read_bytes() for name in names}
        self.cache.put_files(self.key, files)


def whole_of(job: NetworkJob) -> Whole | None:
    """Where the executable of a configuration's model is kept; None where it may come of more than a file and that.

    Of so large a file that nothing of it would be kept, it is not found out, as all of it would have to be read.

    Raises:
        ConfigError: an unknown target, or a cache that others may write to.
    """
    config, target = job.config, job.settings.target
    keys, path = config.network, Path(str(config.model)).expanduser()
    with errors_at("cache"):
        cache = open_networks(config.cache)
    kind = registry.executable_of(target.name)
    if cache is None or kind is None or not kind.holds_weights or target.identity is None or _own(target):
        return None
    if job.device is not None or keys.precision in CHOOSING or keys.quantisation.data is not None:
        return None
    try:
        stamp = _stamp(path)
        if stamp[0] > cache.store.limit:
            return None
        with path.open("rb", buffering=0) as file, ThreadPoolExecutor(1, "autotune-digest") as thread:
            digest = thread.submit(hashlib.file_digest, file, "sha256")
            key = _key(job, digest)
    except OSError:
        return None  # whoever reads the model says what is wrong
    return Whole(path, stamp, key, cache)


def _key(job: NetworkJob, digest: Future[Any]) -> str:
    """Key of a network; what takes long besides the digest of the model is found out meanwhile."""
    target, settings = job.settings.target, job.settings
    document = {
        "what": "network",
        "code": code_digest(),
        "libraries": [version(name) for name in _LIBRARIES],
        "target": [target.name, target.identity, target.tools],
        "hardware": target.hardware.to_json(),
        "name": job.config.name,
        "config": job.config.model_dump(mode="json", include=_INCLUDED),
        "search": settings.search.model_dump(mode="json"),
        "cost_model": settings.cost_model.model_dump(mode="json"),
    }
    document["model"] = digest.result().hexdigest()
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def _own(target: Target) -> bool:
    """Whether rules, operators or importers of somebody's own take part, whose code nobody knows."""
    modules = [type(rule).__module__ for rule in rules_of(target.hardware.kind)]
    functions = _registered("autotune.graph.frontends.onnx.importer.registry", "HANDLERS")
    for operation in _registered("autotune.graph.ops.base", "OPS"):
        functions += [part for part in vars(operation).values() if isfunction(part)]
    modules += [function.__module__ for function in functions]
    return any(not module.startswith(("autotune.", "search_space.")) for module in modules)


def _registered(module: str, table: str) -> list[Any]:
    """What a table has, if its module is imported: otherwise nobody has added to it."""
    return list(getattr(sys.modules.get(module), table, {}).values())


def _stamp(path: Path) -> tuple[int, ...]:
    facts = path.stat()
    return facts.st_size, facts.st_mtime_ns, facts.st_ino
