"""The weights of an executable while it is compiled: where each lies, and the digest of them all."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from autotune.graph.ir import Array

_SHOWN = 64
"""Bytes at the beginning, the middle and the end of an array by which it is told whether it may be one met before."""


class Weights:
    """Constants one after the other, equal ones once.

    Their digest is computed by a thread meanwhile.

    Args:
        spacing: bytes at whose multiples constants begin.

    Attributes:
        nbytes: of all, those between them included.
        parts: bytes (n,), which are those of the whole one after the other.
    """

    def __init__(self, spacing: int) -> None:
        self.nbytes = 0
        self.parts: list[Array] = []
        self._spacing = spacing
        self._places: dict[tuple[str, int, bytes], list[tuple[Array, int]]] = defaultdict(list)
        self._sha256 = hashlib.sha256()
        self._thread = ThreadPoolExecutor(1, "autotune-digest")

    def place(self, array: Array) -> int:
        """Where a constant lies, in bytes from the beginning."""
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        middle = data.nbytes // 2
        shown = b"".join(part.tobytes() for part in (data[:_SHOWN], data[middle : middle + _SHOWN], data[-_SHOWN:]))
        known = self._places[str(array.dtype), data.nbytes, shown]
        for other, place in known:
            if np.array_equal(data, other):
                return place
        place, room = self.nbytes, -(-max(data.nbytes, 1) // self._spacing) * self._spacing
        known.append((data, place))
        self._add(data)
        if room > data.nbytes:
            self._add(np.zeros(room - data.nbytes, np.uint8))
        self.nbytes += room
        return place

    def sha256(self) -> str:
        """Digest of all of them. None can be added afterwards."""
        self._thread.shutdown()
        return self._sha256.hexdigest()

    def _add(self, data: Array) -> None:
        self.parts.append(data)
        self._thread.submit(self._sha256.update, data.data)
