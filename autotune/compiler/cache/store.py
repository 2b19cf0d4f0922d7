"""A folder of entries by digest: written atomically, private, of bounded size, and checked on each read.

Any number of processes may use one folder. An entry is a file: a line with its key and a digest of the payload, then
the payload.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import logging
import os
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from search_space.files import replace_file
from targets.arrays import allocate_aligned

log = logging.getLogger(__name__)

LIMIT = 1 << 30
"""Bytes that the entries of a folder take at most after a compilation."""
TORN_SECONDS = 3600.0
"""Age after which an unfinished file is removed."""
_MARK = b"autotune-cache/2 "
_DIGITS = 64
"""Hexadecimal digits of a digest."""
_CHUNK = 8 << 20
"""Bytes that are read while the bytes before them are checked."""
_FRESH_SECONDS = 60.0
"""Age at which the time of an entry's last use is written again."""


class CacheError(ValueError):
    """A folder that cannot be a cache."""


@dataclass(frozen=True)
class Size:
    """Size of a folder.

    Attributes:
        entries: number of entries.
        nbytes: bytes of all files.
    """

    entries: int
    nbytes: int


class FolderCache:
    """Entries in a folder, which is created by the first write.

    A write that fails costs the next compilation time, and is logged once; so is a damaged entry.

    Args:
        folder: folder of the entries.
        limit: bytes, see `trim`.

    Raises:
        CacheError: other users may write to the folder; entries are code.
    """

    def __init__(self, folder: Path, limit: int = LIMIT) -> None:
        self.folder, self.limit = folder, limit
        self._warned_kinds: set[str] = set()
        self._has_new_entries = False
        self._check()

    def has(self, key: str) -> bool:
        """Tells whether there is an entry under a key, damaged or not."""
        return self._path(key).is_file()

    def get(self, key: str) -> bytes | None:
        """Returns the payload under a key, a hexadecimal digest; None if there is no entry or it is damaged."""
        path = self._path(key)
        try:
            with _open_entry(path) as file:
                data = file.read()
        except FileNotFoundError:
            return None
        except OSError as error:
            self._warn(f"the cache cannot be read: {path}: {error.strerror}")
            return None
        head, _, payload = data.partition(b"\n")
        if head + b"\n" != _head(key, _digest(payload)):
            self._warn(f"an entry of the cache is damaged and will be made again: {path}")
            return None
        self._touch(path)
        return payload

    def read(self, key: str) -> NDArray[np.uint8] | None:
        """Reads a large entry, like `get`, as bytes (n,) aligned to 64; reading and checking overlap."""
        path = self._path(key)
        try:
            with _open_entry(path) as file, ThreadPoolExecutor(1, "autotune-cache") as thread:
                head = file.read(len(_head(key, b"")) + _DIGITS)
                data = allocate_aligned((max(0, os.fstat(file.fileno()).st_size - len(head)),), "uint8", np.empty)
                checksum, filled = hashlib.sha256(), 0
                while got := file.readinto(data[filled : filled + _CHUNK].data):
                    thread.submit(checksum.update, data[filled : filled + got].data)
                    filled += got
        except FileNotFoundError:
            return None
        except OSError as error:
            self._warn(f"the cache cannot be read: {path}: {error.strerror}")
            return None
        if filled != len(data) or head != _head(key, checksum.hexdigest().encode()):
            self._warn(f"an entry of the cache is damaged and will be made again: {path}")
            _remove(path)  # otherwise the next read would find it again
            return None
        self._touch(path)
        return data

    def put(self, key: str, *payload: bytes | memoryview, digest: str | None = None) -> None:
        """Puts a payload under a key.

        Args:
            key: a hexadecimal digest.
            payload: parts, one after the other.
            digest: SHA-256 of all of them, if it is known already.
        """
        path = self._path(key)
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            path.parent.mkdir(exist_ok=True, mode=0o700)
            found = _digest(*payload) if digest is None else digest.encode()
            replace_file(path, _head(key, found), *payload, private=True)
        except OSError as error:
            self._warn(f"the cache cannot be written: {path}: {error.strerror}")
        self._has_new_entries = True

    def trim(self) -> None:
        """Removes the entries used least recently while the total exceeds the limit, if any entry is new."""
        if not self._has_new_entries:
            return
        self._has_new_entries = False
        files = sorted(self._files(), key=lambda item: (item[2], item[0]))
        total = sum(size for _, size, _ in files)
        for path, size, _ in files:
            if total <= self.limit:
                return
            _remove(path)
            total -= size

    def clear(self) -> Size:
        """Removes every entry; returns the size before."""
        found = self.size()
        for path, _, _ in self._files():
            _remove(path)
        return found

    def size(self) -> Size:
        """Counts the entries and their bytes."""
        files = self._files()
        return Size(len(files), sum(size for _, size, _ in files))

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / key

    def _files(self) -> list[tuple[Path, int, float]]:
        """Lists entries with bytes and time of last use; removes files that were begun long ago and never finished."""
        entries = []
        for path in self.folder.glob("[0-9a-f][0-9a-f]/*"):
            try:
                facts = path.lstat()
            except FileNotFoundError:
                continue  # another process removed it
            if not path.name.startswith("."):
                entries.append((path, facts.st_size, facts.st_mtime))
            elif time.time() - facts.st_mtime > TORN_SECONDS:
                _remove(path)
        return entries

    def _touch(self, path: Path) -> None:
        with contextlib.suppress(OSError):  # the file was removed, or the folder is read-only
            if time.time() - path.stat().st_mtime > _FRESH_SECONDS:
                os.utime(path)

    def _check(self) -> None:
        try:
            facts = self.folder.stat()
        except OSError:
            return  # it does not exist yet
        if facts.st_uid != os.getuid() or facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise CacheError(
                f"`cache` must be a folder of this user that nobody else may write to, but got {self.folder} of user "
                f"{facts.st_uid} with mode {stat.filemode(facts.st_mode)}"
            )

    def _warn(self, sentence: str) -> None:
        kind = sentence.partition(":")[0]
        if kind not in self._warned_kinds:
            self._warned_kinds.add(kind)
            log.warning("%s", sentence)


def _head(key: str, digest: bytes) -> bytes:
    """Formats the first line of an entry, which tells an entry that lies in another's place."""
    return _MARK + key.encode() + b" " + digest + b"\n"


def _open_entry(path: Path) -> io.FileIO:
    """Opens an entry to read; waits for no writer of a FIFO.

    Raises:
        OSError: it is missing, unreadable, a link, or no file, in which case it is removed.
    """
    file = open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC), "rb", buffering=0)  # noqa: SIM115
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        _remove(path)
        raise OSError(errno.EINVAL, "an entry must be a regular file")
    return file


def _digest(*payload: bytes | memoryview) -> bytes:
    found = hashlib.sha256()
    for part in payload:
        found.update(part)
    return found.hexdigest().encode()


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):  # another process removed it, or it belongs to another user
        path.unlink()
