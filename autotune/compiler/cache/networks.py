"""Executables as a whole in the cache: files under all that they come of, weights under their own digest."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from autotune.compiler.cache.store import Store
from autotune.graph.types import Array

FOLDER = "networks"
"""In that of the cache."""

LIMIT = 2 << 30
"""Bytes that executables take at most, weights included."""


class NetworkCache:
    """Executables that were compiled before.

    Args:
        store: where they are kept.
    """

    def __init__(self, store: Store) -> None:
        self.store = store

    def knows(self, key: str) -> bool:
        """Whether files were put under a key, be its weights kept or not."""
        return self.store.has(key)

    def files(self, key: str) -> dict[str, bytes] | None:
        """Contents of an executable's files by name, but for its weights; None where there is none."""
        data = self.store.get(key)
        if data is None:
            return None
        head, _, rest = data.partition(b"\n")
        files, place = {}, 0
        for name, nbytes in json.loads(head).items():
            files[name] = rest[place : place + nbytes]
            place += nbytes
        return files

    def put_files(self, key: str, files: Mapping[str, bytes]) -> None:
        """Keeps files for `files`."""
        head = json.dumps({name: len(data) for name, data in files.items()}).encode()
        self.store.put(key, head, b"\n", *files.values())
        self.store.trim()

    def weights(self, sha256: str) -> Array | None:
        """Bytes (n,) of that digest, from a multiple of 64; None where they are not kept."""
        return self.store.read(sha256)

    def put_weights(self, sha256: str, parts: Sequence[Array]) -> None:
        """Keeps bytes, parts (n,) one after the other, for `weights`, unless they take more than half of the room."""
        if sum(part.nbytes for part in parts) <= self.store.limit // 2 and not self.store.has(sha256):
            self.store.put(sha256, *(part.data for part in parts), digest=sha256)
