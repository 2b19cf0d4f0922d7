"""Executables as a whole in the cache, each under the bytes of its model's file and all else that it comes of."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autotune.cache.store import Store
from autotune.graph.types import Array

FOLDER = "networks"
"""In that of the cache."""

LIMIT = 2 << 30
"""Bytes that executables take at most, weights included."""

_LENGTH = struct.Struct("<Q")


@dataclass(frozen=True)
class Whole:
    """An executable.

    Attributes:
        weights: bytes (n,) from a multiple of 64, of which the first are the weights.
        files: contents of the others by name, the manifest included.
    """

    weights: Array
    files: Mapping[str, bytes]


class NetworkCache:
    """Executables that were compiled before.

    An entry is the weights, the other files, a list of these with their bytes, and the length of that: so weights are
    read to where they stay.

    Args:
        store: where they are kept.
    """

    def __init__(self, store: Store) -> None:
        self.store = store

    def get(self, key: str) -> Whole | None:
        """What was put under a key, if it is there and whole."""
        data = self.store.read(key)
        if data is None or not len(data):
            return None
        end = len(data) - _LENGTH.size
        (length,) = _LENGTH.unpack(bytes(data[end:]))
        listed = json.loads(bytes(data[end - length : end]))
        files, place = {}, listed["weights"]
        for name, nbytes in listed["files"].items():
            files[name] = bytes(data[place : place + nbytes])
            place += nbytes
        return Whole(data, files)

    def knows(self, key: str) -> bool:
        """Whether anything was put under a key."""
        return self.store.has(key)

    def put(self, key: str, weights: Sequence[Array], files: Mapping[str, bytes]) -> None:
        """Keeps an executable, or that it was compiled, where it takes more than half of the room.

        Args:
            key: of it.
            weights: their bytes in parts (n,), one after the other.
            files: contents of the others by name.
        """
        nbytes = sum(part.nbytes for part in weights)
        if nbytes > self.store.limit // 2:
            self.store.put(key)
            return
        listed = json.dumps({"weights": nbytes, "files": {name: len(data) for name, data in files.items()}}).encode()
        self.store.put(key, *(part.data for part in weights), *files.values(), listed, _LENGTH.pack(len(listed)))
        self.store.trim()
