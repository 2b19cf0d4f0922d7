"""The weights of an executable during compilation: the offset of each, and the digest of all."""

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
from targets.arrays import allocate_aligned, contiguous

_SAMPLE_BYTES = 64
"""Bytes at the beginning, the middle and the end of an array that are compared first to find an equal one."""


class Weights:
    """Constants one after the other, equal ones once.

    A thread copies them, if they are copied, and computes their digest meanwhile.

    Args:
        spacing: bytes at whose multiples constants begin.
        room: bytes that all of them may take: they are copied to one array, of which only the used pages are touched;
            if one does not fit, or there is no room, it and the following ones stay in their own arrays. 0: no copy.

    Attributes:
        nbytes: bytes of all, gaps included.
    """

    def __init__(self, spacing: int, room: int = 0) -> None:
        self.nbytes = 0
        self._parts: list[Array] = []
        self._pending: list[Future[Array]] = []
        self._room = _reserve(room) if room else None
        self._spacing = spacing
        self._offsets: dict[tuple[str, int, bytes], list[tuple[Future[Array], int]]] = defaultdict(list)
        self._sha256 = hashlib.sha256()
        self._thread = ThreadPoolExecutor(1, "autotune-digest")

    def add(self, array: Array) -> int:
        """Returns the offset of a constant in bytes, which is added unless an equal one is there."""
        data = contiguous(array).reshape(-1).view(np.uint8)
        middle = data.nbytes // 2
        shown = b"".join(
            part.tobytes()
            for part in (data[:_SAMPLE_BYTES], data[middle : middle + _SAMPLE_BYTES], data[-_SAMPLE_BYTES:])
        )
        similar = self._offsets[str(array.dtype), data.nbytes, shown]
        for other, offset in similar:
            if np.array_equal(data, other.result()):
                return offset
        offset, rest = self.nbytes, -max(data.nbytes, 1) % self._spacing + (data.nbytes == 0)
        similar.append((self._add(data), offset))
        if rest:
            self._add(np.zeros(rest, np.uint8))
        return offset

    @property
    def parts(self) -> Sequence[Array]:
        """Bytes of all weights, in parts (n,) one after the other."""
        if self._room is not None:
            self._wait()
        return self._parts

    @property
    def joined_parts(self) -> Sequence[Array] | Array:
        """The parts, or, if they were copied, the array, which is 64-byte aligned and has 64 bytes or more."""
        parts = self.parts
        return parts if self._room is None else self._room[: max(64, self.nbytes)]

    def write(self, path: Path, original: int, file: bool = True) -> dict[str, Any]:
        """Writes all constants added so far to a file.

        Args:
            path: path of the file.
            original: bytes of the constants before they were packed.
            file: whether to write the file; otherwise the caller of the loader must pass the weights.

        Returns:
            The key `weights` of a manifest.
        """
        parts = self.parts
        self._wait()
        if file:
            replace_file(path, *(part.data for part in parts))  # without joining them in memory
        sha256 = self._sha256.hexdigest()
        return {"file": path.name, "nbytes": self.nbytes, "sha256": sha256, "original_nbytes": original}

    def _wait(self) -> None:
        """Waits until everything that was added has been copied."""
        for taken in self._pending:
            taken.result()

    def _add(self, data: Array) -> Future[Array]:
        """Appends bytes; returns a future of the array that holds them."""
        start, self.nbytes = self.nbytes, self.nbytes + data.nbytes
        if self._room is not None and self.nbytes > self._room.nbytes:
            self._room = None
        kept = data if self._room is None else self._room[start : self.nbytes]
        self._parts.append(kept)
        self._pending.append(self._thread.submit(self._take, data, kept))
        return self._pending[-1]

    def _take(self, data: Array, target: Array) -> Array:
        if target is not data:
            np.copyto(target, data)
        self._sha256.update(target.data)
        return target


def _reserve(nbytes: int) -> Array | None:
    """Reserves memory, of which pages are taken when they are written; None if the system promises no more."""
    try:
        return allocate_aligned((max(64, nbytes),), "uint8", np.empty)
    except MemoryError:
        return None
