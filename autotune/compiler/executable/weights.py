"""The weights of an executable while it is compiled: where each lies, and the digest of them all."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from autotune.graph.ir import Array
from search_space.files import replace_file
from targets.arrays import aligned, contiguous

_SHOWN = 64
"""Bytes at the beginning, the middle and the end of an array by which it is told whether it may be one met before."""


class Weights:
    """Constants one after the other, equal ones once.

    A thread copies them, where they are copied, and computes their digest meanwhile.

    Args:
        spacing: bytes at whose multiples constants begin.
        room: bytes that all of them are to take at most: they are copied to one array, of which no more is touched than
            they take; from the first one on that has no room left they stay where they are. 0: all do.

    Attributes:
        nbytes: of all, those between them included.
    """

    def __init__(self, spacing: int, room: int = 0) -> None:
        self.nbytes = 0
        self._parts: list[Array] = []
        self._taken: list[Future[Array]] = []
        self._room = aligned((max(64, room),), "uint8", np.empty) if room else None
        self._spacing = spacing
        self._places: dict[tuple[str, int, bytes], list[tuple[Future[Array], int]]] = defaultdict(list)
        self._sha256 = hashlib.sha256()
        self._thread = ThreadPoolExecutor(1, "autotune-digest")

    def place(self, array: Array) -> int:
        """Where a constant lies, in bytes from the beginning."""
        data = contiguous(array).reshape(-1).view(np.uint8)
        middle = data.nbytes // 2
        shown = b"".join(part.tobytes() for part in (data[:_SHOWN], data[middle : middle + _SHOWN], data[-_SHOWN:]))
        known = self._places[str(array.dtype), data.nbytes, shown]
        for other, place in known:
            if np.array_equal(data, other.result()):
                return place
        place, rest = self.nbytes, -max(data.nbytes, 1) % self._spacing + (data.nbytes == 0)
        known.append((self._add(data), place))
        if rest:
            self._add(np.zeros(rest, np.uint8))
        return place

    @property
    def parts(self) -> Sequence[Array]:
        """Bytes (n,), which are those of the whole one after the other."""
        if self._room is not None:
            self._wait()
        return self._parts

    @property
    def whole(self) -> Sequence[Array] | Array:
        """The parts, or where they were copied the array; that is on a 64-byte boundary and has 64 bytes or more."""
        parts = self.parts
        return parts if self._room is None else self._room[: max(64, self.nbytes)]

    def write(self, path: Path, original: int, file: bool = True) -> dict[str, Any]:
        """Writes all that there are so far to a file.

        Args:
            path: of the file.
            original: bytes of the constants before they were packed.
            file: whether it is written; otherwise whoever loads the executable is to be given the weights.

        Returns:
            The key `weights` of a manifest.
        """
        parts = self.parts
        self._wait()
        if file:
            replace_file(path, *(part.data for part in parts))  # they are not copied into one
        sha256 = self._sha256.hexdigest()
        return {"file": path.name, "nbytes": self.nbytes, "sha256": sha256, "original_nbytes": original}

    def _wait(self) -> None:
        """Until all that was added lies in its place."""
        for taken in self._taken:
            taken.result()

    def _add(self, data: Array) -> Future[Array]:
        """Appends bytes; where they lie, once they lie there."""
        start, self.nbytes = self.nbytes, self.nbytes + data.nbytes
        if self._room is not None and self.nbytes > self._room.nbytes:
            self._room = None
        kept = data if self._room is None else self._room[start : self.nbytes]
        self._parts.append(kept)
        self._taken.append(self._thread.submit(self._take, data, kept))
        return self._taken[-1]

    def _take(self, data: Array, kept: Array) -> Array:
        if kept is not data:
            np.copyto(kept, data)
        self._sha256.update(kept.data)
        return kept
