"""The container of GGUF: metadata by key, and tensors, each of which is a span of the mapped file.

https://github.com/ggml-org/ggml/blob/master/docs/gguf.md

Every count and length is compared with the bytes that are left before anything is allocated for it. Nothing of a file
is executed.
"""

from __future__ import annotations

import math
import mmap
import os
import struct
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from autotune.graph.types import Array
from autotune.language.gguf.blocks import TYPES, BlockType, name_type
from autotune.language.model import LanguageModelError

MAGIC = b"GGUF"
VERSIONS = (2, 3)
HEADER = struct.Struct("<4sIQQ")
"""Magic, version, number of tensors, number of keys."""
LENGTH = struct.Struct("<Q")
MOST_DIMENSIONS = 4
LEAST_ENTRY = 13
"""Least bytes of a key and its value: a length of 8, a type of 4, and a byte."""
LEAST_TENSOR = 32
"""Least bytes of a tensor's entry: a length of 8, a rank of 4, an extent of 8, a type of 4, an offset of 8."""
ALIGNMENT = 32
"""Default alignment of tensors in bytes."""

STRING, ARRAY, BOOL = 8, 9, 7
NUMBERS = {
    0: "<u1",
    1: "<i1",
    2: "<u2",
    3: "<i2",
    4: "<u4",
    5: "<i4",
    6: "<f4",
    BOOL: "<u1",
    10: "<u8",
    11: "<i8",
    12: "<f8",
}
"""Types of metadata that are numbers → NumPy's names."""


@dataclass(frozen=True, eq=False)
class StoredTensor:
    """A tensor of a file.

    Attributes:
        name: name in the file.
        shape: extents, the innermost last.
        kind: type of its blocks.
        data: uint8 (rows, bytes of a row), mapped read-only; all extents except the last are rows.
    """

    name: str
    shape: tuple[int, ...]
    kind: BlockType
    data: Array


class GGUFFile:
    """A mapped GGUF file.

    Args:
        path: path of the file.

    Attributes:
        metadata: values by key: numbers, strings, lists of strings, and arrays of numbers (n,).
        tensors: tensors by name, in the order of the file.

    Raises:
        LanguageModelError: the file is no GGUF file, is damaged or ends too early, or has tensors of unknown types.
        OSError: it cannot be read.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        with self.path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size < HEADER.size:
                raise self.error(f"must have at least {HEADER.size} bytes", size)
            self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._position = 0
        magic, version, tensors, keys = HEADER.unpack(self._take(HEADER.size, "header"))
        if magic != MAGIC:
            raise self.error(f"must begin with {MAGIC!r}", magic)
        if version not in VERSIONS:
            raise self.error(f"must be of version {' or '.join(map(str, VERSIONS))} in little-endian order", version)
        self._check_count(tensors, LEAST_TENSOR, "tensors")
        self._check_count(keys, LEAST_ENTRY, "keys")
        self.metadata: dict[str, Any] = {}
        for _ in range(keys):
            key = self._string("key")
            if key in self.metadata:
                raise self.error("must have each key once", f"{key!r:.80} twice")
            self.metadata[key] = self._value(self._number("<u4", key), key)
        self._check_count(tensors, LEAST_TENSOR, "tensors")
        self.tensors = self._read_tensors(tensors)

    def error(self, rule: str, value: object) -> LanguageModelError:
        """Makes the error that a rule of the format is broken; names of a file may have any characters."""
        text = f"a GGUF file {rule}, but got {value}"
        shown = "".join(character if character.isprintable() else "?" for character in text)
        return LanguageModelError(f"{self.path}: {shown}")

    # ------------------------------------------------------------------ metadata
    def _take(self, count: int, what: str) -> bytes:
        start, end = self._position, self._position + count
        if end > len(self._bytes):
            raise self.error(f"must have all bytes of its {what:.80}", f"{len(self._bytes)} of {end}")
        self._position = end
        return self._bytes[start:end]

    def _check_count(self, count: int, least: int, what: str) -> None:
        """Refuses a number of items that cannot be in the rest of the file, as each takes so many bytes."""
        if count * least > len(self._bytes) - self._position:
            raise self.error(f"must have as many {what:.80} as it says", f"{count} in {len(self._bytes)} bytes")

    def _number(self, dtype: str, what: str) -> Any:
        kind = np.dtype(dtype)
        return np.frombuffer(self._take(kind.itemsize, what), kind)[0].item()

    def _string(self, what: str) -> str:
        (length,) = LENGTH.unpack(self._take(LENGTH.size, what))
        return self._take(length, what).decode("utf-8", "surrogateescape")

    def _value(self, kind: int, key: str) -> Any:
        if kind == STRING:
            return self._string(key)
        if kind == ARRAY:
            inner, count = self._number("<u4", key), self._number("<u8", key)
            if inner == STRING:
                self._check_count(count, 8, f"strings of {key}")
                return [self._string(key) for _ in range(count)]
            dtype = np.dtype(self._dtype(inner, key))
            self._check_count(count, dtype.itemsize, f"numbers of {key}")
            return np.frombuffer(self._take(count * dtype.itemsize, key), dtype)
        value = self._number(self._dtype(kind, key), key)
        return bool(value) if kind == BOOL else value

    def _dtype(self, kind: int, key: str) -> str:
        if kind not in NUMBERS:
            raise self.error(
                "must have values that are numbers, strings, or arrays of them", f"type {kind} of {key:.80}"
            )
        return NUMBERS[kind]

    # ------------------------------------------------------------------ tensors
    def _read_tensors(self, count: int) -> dict[str, StoredTensor]:
        alignment = self.metadata.get("general.alignment", ALIGNMENT)
        if not isinstance(alignment, int) or alignment < 8 or alignment & (alignment - 1):
            raise self.error("must have a `general.alignment` of a power of two, 8 or more", f"{alignment!r:.80}")
        entries = [self._tensor_entry() for _ in range(count)]
        if len({name for name, *_ in entries}) < len(entries):
            raise self.error("must have each tensor once", "one twice")
        start = -(-self._position // alignment) * alignment
        spans: list[tuple[int, int, str]] = []
        tensors = {}
        for name, shape, kind, offset in entries:
            row = shape[-1] // kind.size * kind.nbytes
            rows = math.prod(shape[:-1])
            begin, end = start + offset, start + offset + rows * row
            if offset % alignment or end > len(self._bytes):
                rule = f"must have {name:.80} at a multiple of {alignment} within its {len(self._bytes)} bytes"
                raise self.error(rule, f"bytes {begin} to {end}")
            spans.append((begin, end, name))
            data = np.frombuffer(self._bytes, np.uint8, rows * row, begin).reshape(rows, row)
            tensors[name] = StoredTensor(name, shape, kind, data)
        spans.sort()
        for (_, end, first), (begin, _, second) in pairwise(spans):
            if begin < end:  # each byte is one weight's, so that memory grows with the size of the file alone
                raise self.error("must have tensors that do not overlap", f"{first:.80} and {second:.80}")
        return tensors

    def _tensor_entry(self) -> tuple[str, tuple[int, ...], BlockType, int]:
        name = self._string("tensors")
        rank = self._number("<u4", name)
        if not 1 <= rank <= MOST_DIMENSIONS:
            raise self.error(f"must have tensors of 1 to {MOST_DIMENSIONS} dimensions", f"{rank} of {name:.80}")
        extents = struct.unpack(f"<{rank}Q", self._take(8 * rank, name))
        number, offset = self._number("<u4", name), self._number("<u8", name)
        if number not in TYPES:
            allowed = ", ".join(kind.name for kind in TYPES.values())
            raise self.error(f"must have tensors of the types {allowed}", f"{name_type(number)} of {name:.80}")
        kind = TYPES[number]
        if min(extents) < 1 or extents[0] % kind.size:
            rule = f"must have extents of 1 or more, the first a multiple of {kind.size} for {kind.name}"
            raise self.error(rule, f"{list(extents)} of {name:.80}")
        return name, extents[::-1], kind, offset
