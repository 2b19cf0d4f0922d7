"""Append-only file of lines: complete lines or nothing, any number of writers, and repair of a torn last line.

A line is one `os.write` on a descriptor opened with `O_APPEND`, followed by `fsync`. A lock on the file is held for
these two alone. A crash can tear only the last line of the file, and only one that was never acknowledged. The next
writer repairs it. Opening a file does not change it, as it may be one of another kind. The system releases the lock
when its holder dies.
"""

from __future__ import annotations

import fcntl
import os
import stat
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from measure.errors import FullError, RecordError
from measure.filelock import ALONE, SHARED, lock_within

LOCK_TIMEOUT = 60.0
"""Seconds to wait for other writers, each of which needs milliseconds."""

_MOST = 1 << 26
"""Maximum bytes of a line of ours; longer lines are read in parts."""


class LineReader:
    """A reader of lines of an open file, which keeps working if the file is renamed or removed.

    Args:
        descriptor: descriptor of the file; the reader duplicates it.
        name: name of the file, for messages.
    """

    def __init__(self, descriptor: int, name: str) -> None:
        self.name = name
        self._descriptor = os.dup(descriptor)
        weakref.finalize(self, os.close, self._descriptor)

    def line_at(self, offset: int) -> bytes:
        """Reads the line that starts at `offset` bytes, without its newline."""
        parts: list[bytes] = []
        while not parts or b"\n" not in parts[-1]:
            parts.append(os.pread(self._descriptor, 1 << 14, offset + sum(map(len, parts))))
            if not parts[-1]:
                break
        return b"".join(parts).partition(b"\n")[0]


class Journal:
    """A file of newline-terminated lines.

    Args:
        path: path of the file; created unless it exists or `readonly` is set.
        complete: function that tells whether an unterminated last line lacks only its newline (True), or is the
            beginning of a line (False). It raises a `RecordError` for any other line.
        readonly: whether to never write, not even to repair.

    Attributes:
        last_repair: sentence on the latest repair of a torn last line; None if there was no repair.

    Raises:
        RecordError: the file cannot be opened, or its end is not a line of its kind.
    """

    def __init__(self, path: str | os.PathLike[str], complete: Callable[[bytes], bool], readonly: bool = False) -> None:
        self.path = Path(path)
        self.readonly = readonly
        self.last_repair: str | None = None
        self._complete = complete
        flags = os.O_RDONLY if readonly else os.O_RDWR | os.O_APPEND | os.O_CREAT
        try:
            self._file = os.fdopen(os.open(self.path, flags | os.O_CLOEXEC, 0o644), "rb", buffering=0)
        except OSError as error:
            doing = "readable" if readonly else "writable"
            raise RecordError(f"`records` must be a {doing} file, but got {self.path}: {error.strerror}") from None
        try:
            if not stat.S_ISREG(os.fstat(self._file.fileno()).st_mode):
                raise RecordError(f"`records` must be a regular file, but got {self.path}")
            with self._hold_lock():
                size, start, complete_tail = self._look()
        except RecordError:
            self._file.close()
            raise
        self._end = size if complete_tail else start
        self._lines = 0  # number of lines before `_end`, once they were read
        if readonly and not complete_tail:
            self.last_repair = f"{self.path}: the last line was torn ({size - start} bytes) and was left out"

    def lines(self) -> Iterator[tuple[int, int, bytes]]:
        """Yields (line number from 1, offset in bytes, line without its newline) of each line complete when opened."""
        offset, number, self._lines = 0, 0, 0
        with os.fdopen(os.dup(self._file.fileno()), "rb") as file:  # the path may name another file by now
            file.seek(0)
            while offset < self._end and (line := file.readline(min(self._end - offset, _MOST))):
                number += 1
                yield number, offset, line.removesuffix(b"\n")
                offset += len(line)
                self._lines += line.endswith(b"\n")

    def heal(self) -> None:
        """Repairs a torn last line, once everything before it was recognised; does nothing if the line is complete.

        Raises:
            FullError: the disk is full, so that the newline cannot be added.
            RecordError: the last line is not of this file's kind, or others keep the file locked.
        """
        if not self.readonly:
            with self._hold_lock():
                self._repair_last_line()

    def reader(self) -> LineReader:
        """Makes a reader, which works also after the journal was closed."""
        return LineReader(self._file.fileno(), str(self.path))

    def append(self, lines: Sequence[bytes]) -> list[tuple[int, int]]:
        """Writes lines, their newlines included, and syncs them to disk at once.

        Returns:
            Number from 1 and offset in bytes of each line. Other writers' lines may precede the first.

        Raises:
            FullError: the lines could not be written; the file has no part of them.
            RecordError: the journal is read-only, or others keep the file locked.
        """
        if self.readonly:
            raise RecordError(f"`records` must be opened for writing to append, but got readonly={self.path}")
        with self._hold_lock():
            offset = self._repair_last_line()
            self._add(b"".join(lines), offset)
            positions = []
            for line in lines:
                self._lines += 1
                positions.append((self._lines, offset))
                offset += len(line)
            self._end = offset
        return positions

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    @contextmanager
    def _hold_lock(self) -> Iterator[None]:
        """Holds the file's lock: exclusively to write, against writers alone to read."""
        mode = SHARED if self.readonly else ALONE
        if not lock_within(LOCK_TIMEOUT, self._file.fileno(), mode, pause=0.001):
            raise RecordError(
                f"`records` must be free to write within {LOCK_TIMEOUT:g} seconds, but got {self.path}, which "
                "another process keeps locked"
            )
        try:
            yield
        finally:
            fcntl.flock(self._file.fileno(), fcntl.LOCK_UN)

    def _add(self, data: bytes, end: int) -> None:
        """Writes all of `data` or nothing at the end of the file, which is at `end` bytes, and syncs."""
        rest = memoryview(data)
        try:
            while rest:  # a second write only if the disk is full, to get its error
                rest = rest[os.write(self._file.fileno(), rest) :]
            os.fsync(self._file.fileno())
        except OSError as error:
            os.ftruncate(self._file.fileno(), end)
            raise FullError(
                f"`records` must have room for every record, but writing {len(data)} bytes to {self.path} failed: "
                f"{error.strerror}; the records before it are kept"
            ) from None

    def _look(self) -> tuple[int, int, bool]:
        """Returns the file's size and the start of its unterminated last line, in bytes, and whether it is complete."""
        size = os.fstat(self._file.fileno()).st_size
        start = self._last_newline(size) + 1
        tail = os.pread(self._file.fileno(), min(size - start, _MOST), start)
        try:
            return size, start, not tail or self._complete(tail)
        except RecordError as error:
            raise RecordError(f"{self.path}: {error}") from None

    def _repair_last_line(self) -> int:
        """Repairs the last line and returns the end of the file in bytes; the caller holds the lock."""
        size, start, complete_tail = self._look()
        before = self._end
        if start == size:
            self._end = size
        elif complete_tail:
            self._add(b"\n", size)
            self.last_repair = f"{self.path}: the last line had lost its newline; it was put back"
            self._end = size + 1
        else:
            os.ftruncate(self._file.fileno(), start)
            self.last_repair = f"{self.path}: the last line was torn ({size - start} bytes) and was cut off"
            self._end = start
        self._lines += self._newlines(before, self._end)
        return self._end

    def _last_newline(self, size: int) -> int:
        """Finds the offset of the last newline in bytes; -1 if there is no newline."""
        end, block = size, 1  # nearly always the last byte is the newline
        while end > 0:
            begin = max(0, end - block)
            found = os.pread(self._file.fileno(), end - begin, begin).rfind(b"\n")
            if found >= 0:
                return begin + found
            end, block = begin, 1 << 16
        return -1

    def _newlines(self, begin: int, end: int) -> int:
        """Counts the lines that end between two offsets."""
        count = 0
        while begin < end:
            part = os.pread(self._file.fileno(), min(end - begin, 1 << 16), begin)
            count += part.count(b"\n")
            begin += len(part)
        return count
