"""Complete executables in the cache: files by a key of all that they depend on, weights by their own digest."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from autotune.compiler.cache.store import FolderCache
from autotune.graph.types import Array

FOLDER = "networks"
"""Folder within that of the cache."""

LIMIT = 2 << 30
"""Bytes that executables take at most, weights included."""


class NetworkCache:
    """Executables that were compiled before.

    Args:
        store: store of the files and weights.
    """

    def __init__(self, store: FolderCache) -> None:
        self.store = store

    def knows(self, key: str) -> bool:
        """Tells whether files were put under a key, even if their weights are no longer cached."""
        return self.store.has(key)

    def files(self, key: str) -> dict[str, bytes] | None:
        """Returns the contents of an executable's files by name, without its weights; None if there is no entry."""
        data = self.store.get(key)
        if data is None:
            return None
        head, _, rest = data.partition(b"\n")
        files, offset = {}, 0
        for name, nbytes in json.loads(head).items():
            files[name] = rest[offset : offset + nbytes]
            offset += nbytes
        return files

    def put_files(self, key: str, files: Mapping[str, bytes]) -> None:
        """Keeps files for `files`."""
        head = json.dumps({name: len(data) for name, data in files.items()}).encode()
        self.store.put(key, head, b"\n", *files.values())
        self.store.trim()

    def weights(self, sha256: str) -> Array | None:
        """Returns the bytes (n,) of that digest, aligned to 64; None if they are not cached."""
        return self.store.read(sha256)

    def put_weights(self, sha256: str, parts: Sequence[Array]) -> None:
        """Keeps bytes, parts (n,) one after the other, for `weights`, unless they take more than half of the limit."""
        if sum(part.nbytes for part in parts) <= self.store.limit // 2 and not self.store.has(sha256):
            self.store.put(sha256, *(part.data for part in parts), digest=sha256)
