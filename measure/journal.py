"""Append-only file of lines: whole lines or nothing, any number of writers, and a torn last line healed.

A line is one `os.write` on a descriptor opened with `O_APPEND`, followed by `fsync`, both under a lock on the file that
is held for these two alone: a crash can tear only the last line of the file, and only one that was never acknowledged.
Whoever writes next heals it, and nobody who has only opened the file changes it: it may be one of another kind. The
lock is the system's, which lets go of it when its holder dies.
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
"""Bytes of a line; what is longer is looked at in parts, as it is none of ours."""


class LineReader:
    """Reads lines of an open file for as long as somebody holds the reader, whatever becomes of the file's name.

    Args:
        descriptor: of the file, which is duplicated.
        name: of the file, for messages.
    """

    def __init__(self, descriptor: int, name: str) -> None:
        self.name = name
        self._descriptor = os.dup(descriptor)
        weakref.finalize(self, os.close, self._descriptor)

    def line_at(self, offset: int) -> bytes:
        """The line that starts at `offset` bytes, without its newline."""
        parts: list[bytes] = []
        while not parts or b"\n" not in parts[-1]:
            parts.append(os.pread(self._descriptor, 1 << 14, offset + sum(map(len, parts))))
            if not parts[-1]:
                break
        return b"".join(parts).partition(b"\n")[0]


class Journal:
    """A file of newline-terminated lines.

    Args:
        path: the file; made empty where it does not exist, unless `readonly`.
        complete: tells whether an unterminated last line is whole, only its newline missing, or the beginning of one
            that was being written; raises a `RecordError` for any other.
        readonly: never write, not even to heal.

    Attributes:
        repaired: one sentence on what was done about a torn last line, the latest; None where there was none.

    Raises:
        RecordError: the file cannot be opened, or ends in what is no line of its kind.
    """

    def __init__(self, path: str | os.PathLike[str], complete: Callable[[bytes], bool], readonly: bool = False) -> None:
        self.path = Path(path)
        self.readonly = readonly
        self.repaired: str | None = None
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
            with self._locked():
                size, start, whole = self._look()
        except RecordError:
            self._file.close()
            raise
        self._end = size if whole else start
        self._lines = 0  # ends of lines before `_end`, once they were read
        if readonly and not whole:
            self.repaired = f"{self.path}: the last line was torn ({size - start} bytes) and was left out"

    def lines(self) -> Iterator[tuple[int, int, bytes]]:
        """Yields (line number from 1, offset in bytes, line without its newline) of every line whole when opened."""
        offset, number, self._lines = 0, 0, 0
        with os.fdopen(os.dup(self._file.fileno()), "rb") as file:  # the path may be another file's by now
            file.seek(0)
            while offset < self._end and (line := file.readline(min(self._end - offset, _MOST))):
                number += 1
                yield number, offset, line.removesuffix(b"\n")
                offset += len(line)
                self._lines += line.endswith(b"\n")

    def heal(self) -> None:
        """Deals with a torn last line, once everything before it was recognised; nothing where that is all right.

        Raises:
            FullError: there is no room for a newline.
            RecordError: the last line is none of this file's kind, or others keep the file locked.
        """
        if not self.readonly:
            with self._locked():
                self._healed()

    def reader(self) -> LineReader:
        """Reads lines also after the journal was closed."""
        return LineReader(self._file.fileno(), str(self.path))

    def append(self, lines: Sequence[bytes]) -> list[tuple[int, int]]:
        """Writes lines, their newlines included, and syncs them to disk at once.

        Returns:
            Of each its number from 1, and its offset in bytes. Other writers' lines may stand before the first.

        Raises:
            FullError: the lines could not be written, and nothing of them is in the file.
            RecordError: the journal is read only, or others keep the file locked.
        """
        if self.readonly:
            raise RecordError(f"`records` must be opened for writing to append, but got readonly={self.path}")
        with self._locked():
            offset = self._healed()
            self._add(b"".join(lines), offset)
            places = []
            for line in lines:
                self._lines += 1
                places.append((self._lines, offset))
                offset += len(line)
            self._end = offset
        return places

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Holds the file's lock: against all others to write, against writers to read."""
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
        """Writes at the end of the file, which is at `end` bytes, and syncs; all of it or nothing."""
        rest = memoryview(data)
        try:
            while rest:  # once, unless there is no room: the second attempt says why
                rest = rest[os.write(self._file.fileno(), rest) :]
            os.fsync(self._file.fileno())
        except OSError as error:
            os.ftruncate(self._file.fileno(), end)
            raise FullError(
                f"`records` must have room for every record, but writing {len(data)} bytes to {self.path} failed: "
                f"{error.strerror}; the records before it are kept"
            ) from None

    def _look(self) -> tuple[int, int, bool]:
        """Size of the file, where its last line begins that has no newline, and whether that is whole; in bytes."""
        size = os.fstat(self._file.fileno()).st_size
        start = self._last_newline(size) + 1
        tail = os.pread(self._file.fileno(), min(size - start, _MOST), start)
        try:
            return size, start, not tail or self._complete(tail)
        except RecordError as error:
            raise RecordError(f"{self.path}: {error}") from None

    def _healed(self) -> int:
        """Makes the last whole line the end of the file, and returns it in bytes; the lock is held."""
        size, start, whole = self._look()
        before = self._end
        if start == size:
            self._end = size
        elif whole:
            self._add(b"\n", size)
            self.repaired = f"{self.path}: the last line had lost its newline; it was put back"
            self._end = size + 1
        else:
            os.ftruncate(self._file.fileno(), start)
            self.repaired = f"{self.path}: the last line was torn ({size - start} bytes) and was cut off"
            self._end = start
        self._lines += self._newlines(before, self._end)
        return self._end

    def _last_newline(self, size: int) -> int:
        """Offset of the last newline in bytes, -1 where there is none."""
        end, block = size, 1  # the first byte to look at is nearly always the one
        while end > 0:
            begin = max(0, end - block)
            found = os.pread(self._file.fileno(), end - begin, begin).rfind(b"\n")
            if found >= 0:
                return begin + found
            end, block = begin, 1 << 16
        return -1

    def _newlines(self, begin: int, end: int) -> int:
        """Lines that end between two offsets."""
        count = 0
        while begin < end:
            part = os.pread(self._file.fileno(), min(end - begin, 1 << 16), begin)
            count += part.count(b"\n")
            begin += len(part)
        return count
