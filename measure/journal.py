"""Append-only file of lines: whole lines or nothing, one writer, and a torn last line healed on open.

A line is one `os.write` on a descriptor opened with `O_APPEND`, followed by `fsync`: a crash can tear only
the last line of the file, and only one that was never acknowledged.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from measure.errors import RecordError


class Journal:
    """A file of newline-terminated lines.

    Args:
        path: the file; made empty where it does not exist, unless `readonly`.
        complete: tells whether an unterminated last line is whole, only its newline missing.
        readonly: never write, not even to heal.

    Attributes:
        repaired: one sentence on what was done about a torn last line; None where there was none.
    """

    def __init__(self, path: str | os.PathLike[str], complete: Callable[[bytes], bool], readonly: bool = False) -> None:
        self.path = Path(path)
        self.readonly = readonly
        self.repaired: str | None = None
        flags = os.O_RDONLY if readonly else os.O_RDWR | os.O_APPEND | os.O_CREAT
        try:
            self._file = os.fdopen(os.open(self.path, flags | os.O_CLOEXEC, 0o644), "rb", buffering=0)
        except OSError as error:
            doing = "readable" if readonly else "writable"
            raise RecordError(f"`records` must be a {doing} file, but got {self.path}: {error.strerror}") from None
        if not readonly and not self._lock():
            self._file.close()
            raise RecordError(f"`records` must have one writer at a time, but got {self.path}, open in another run")
        self._end = self._heal(complete)

    def lines(self) -> Iterator[tuple[int, int, bytes]]:
        """Yields (line number from 1, offset in bytes, line without its newline) of every whole line."""
        offset, number = 0, 0
        with open(self.path, "rb") as file:
            for line in file:
                if offset + len(line) > self._end:
                    return
                number += 1
                yield number, offset, line[:-1]
                offset += len(line)

    def line_at(self, offset: int) -> bytes:
        """The line that starts at `offset` bytes, without its newline."""
        parts: list[bytes] = []
        while not parts or b"\n" not in parts[-1]:
            parts.append(os.pread(self._file.fileno(), 1 << 16, offset + sum(map(len, parts))))
            if not parts[-1]:
                break
        return b"".join(parts).partition(b"\n")[0]

    def append(self, line: bytes) -> int:
        """Writes one line, its newline included, and syncs it to disk; returns its offset in bytes."""
        if self.readonly:
            raise RecordError(f"`records` must be opened for writing to append, but got readonly={self.path}")
        offset = os.fstat(self._file.fileno()).st_size
        written = os.write(self._file.fileno(), line)
        if written != len(line):
            os.ftruncate(self._file.fileno(), offset)
            raise RecordError(
                f"`records` must have room for a whole line, but got {written} of {len(line)} bytes into {self.path}"
            )
        os.fsync(self._file.fileno())
        self._end = offset + written
        return offset

    def close(self) -> None:
        """Closes the file and lets another writer in."""
        self._file.close()

    def _lock(self) -> bool:
        try:
            fcntl.flock(self._file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _heal(self, complete: Callable[[bytes], bool]) -> int:
        """Finds the end of the last whole line in bytes, and makes it the end of the file where we may."""
        size = os.fstat(self._file.fileno()).st_size
        start = self._last_newline(size) + 1
        if start == size:
            return size
        tail = os.pread(self._file.fileno(), size - start, start)
        if not self.readonly and complete(tail):
            os.write(self._file.fileno(), b"\n")
            self.repaired = f"{self.path}: the last line had lost its newline; it was put back"
            return size + 1
        if not self.readonly:
            os.ftruncate(self._file.fileno(), start)
        done = "left out" if self.readonly else "cut off"
        self.repaired = f"{self.path}: the last line was torn ({len(tail)} bytes) and was {done}"
        return start

    def _last_newline(self, size: int) -> int:
        """Offset of the last newline in bytes, -1 where there is none."""
        end, block = size, 1 << 16
        while end > 0:
            begin = max(0, end - block)
            found = os.pread(self._file.fileno(), end - begin, begin).rfind(b"\n")
            if found >= 0:
                return begin + found
            end = begin
        return -1
