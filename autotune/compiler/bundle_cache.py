"""Cache entries of whole executables, by the bytes of the model's file.

A process that loads one imports no module that reads models, chooses schedules or builds kernels. If an executable is
too large for the cache, its key still shows that schedules and kernels are cached, so that no processes must be started
for them.
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
from autotune.compiler.cache.locations import open_networks
from autotune.compiler.cache.networks import NetworkCache
from autotune.compiler.job import NetworkJob
from autotune.config import errors_at
from autotune.graph.types import Array
from autotune.modes import CHOOSING
from search_space.machines.registry import get_rules
from targets import registry
from targets.base import Target
from targets.executable import Executable
from targets.manifest import MANIFEST, list_files, read_sealed

FOLDER = "network"
"""Folder of the executable within a run folder."""

LINE = 64
"""Smallest number of bytes of weights in memory."""

_LIBRARIES = ("onnx", "ml_dtypes")
"""Libraries that read models, besides those in `code_digest`."""

_KEY_SECTIONS = {"target", "trials", "seed", "measure", "network"}
"""Keys of a configuration that affect an executable and are not in the key otherwise."""


@dataclass(frozen=True)
class BundleEntry:
    """Cache entry of the executable of a model's file.

    Attributes:
        path: path of the file.
        stamp: size, time of writing and inode of the file, as of when the key was computed.
        key: key of the entry.
        cache: cache that holds the entry.
    """

    path: Path
    stamp: tuple[int, ...]
    key: str
    cache: NetworkCache

    @property
    def nbytes(self) -> int:
        """Bytes of the file."""
        return self.stamp[0]

    @property
    def was_compiled(self) -> bool:
        """Tells whether the model was compiled before, even if its executable is not cached."""
        return self.cache.knows(self.key)

    def load(self, folder: Path, threads: int | None, target: str) -> Executable | None:
        """Loads the executable, with its files in a folder and its weights in memory; None if it is not cached."""
        kind, files = registry.find_executable_class(target), self.cache.files(self.key)
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
        """Stores the weights of an executable, in parts (n,), cut to the size in the manifest in a folder."""
        facts = read_sealed(folder)["weights"]
        if len(parts) == 1:
            parts = [parts[0][: facts["nbytes"]]]
        self.cache.put_weights(facts["sha256"], parts)

    def keep(self, executable: Executable) -> None:
        """Stores the files of an executable, except the weights, unless the model's file has changed meanwhile."""
        try:
            same = _stamp(self.path) == self.stamp
        except OSError:  # the file was removed
            same = False
        if not same:
            return
        names = [MANIFEST, *(file for file, _ in list_files(executable.manifest))]
        names.remove(executable.manifest["weights"]["file"])
        files = {name: (executable.folder / name).read_bytes() for name in names}
        self.cache.put_files(self.key, files)


def find_bundle_entry(job: NetworkJob) -> BundleEntry | None:
    """Makes the cache entry of a configuration's model; None if the executable may depend on more than its file and the
    configuration.

    For a file above the cache's limit the result is None, too: computing the key would read all of it.

    Raises:
        ConfigError: the target is unknown, or other users may write to the cache.
    """
    config, target = job.config, job.settings.target
    keys, path = config.network, Path(str(config.model)).expanduser()
    with errors_at("cache"):
        cache = open_networks(config.cache)
    kind = registry.find_executable_class(target.name)
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
        return None  # reading the model will report the error
    return BundleEntry(path, stamp, key, cache)


def _key(job: NetworkJob, digest: Future[Any]) -> str:
    """Computes the key of a network; the slow parts overlap with the digest of the model."""
    target, settings = job.settings.target, job.settings
    document = {
        "what": "network",
        "code": code_digest(),
        "libraries": [version(name) for name in _LIBRARIES],
        "target": [target.name, target.identity, target.tools],
        "hardware": target.hardware.to_json(),
        "name": job.config.name,
        "config": job.config.model_dump(mode="json", include=_KEY_SECTIONS),
        "search": settings.search.model_dump(mode="json"),
        "cost_model": settings.cost_model.model_dump(mode="json"),
    }
    document["model"] = digest.result().hexdigest()
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def _own(target: Target) -> bool:
    """Tells whether rules, operators or importers from outside take part, whose code is in no digest."""
    modules = [type(rule).__module__ for rule in get_rules(target.hardware.kind)]
    functions = _list_entries("autotune.graph.frontends.onnx.importer.registry", "HANDLERS")
    for operation in _list_entries("autotune.graph.ops.base", "OPS"):
        functions += [part for part in vars(operation).values() if isfunction(part)]
    modules += [function.__module__ for function in functions]
    return any(not module.startswith(("autotune.", "search_space.")) for module in modules)


def _list_entries(module: str, table: str) -> list[Any]:
    """Lists the entries of a table, if its module is imported: otherwise no code has added to it."""
    return list(getattr(sys.modules.get(module), table, {}).values())


def _stamp(path: Path) -> tuple[int, ...]:
    facts = path.stat()
    return facts.st_size, facts.st_mtime_ns, facts.st_ino
