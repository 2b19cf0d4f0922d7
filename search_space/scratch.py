"""Temporary folders that are removed after their process ends, in whatever way.

A process holds a lock on each folder of its own, which the system releases when the process dies. A folder without a
lock was left behind by a signal, and the next process that needs a folder removes it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import threading
import time
import weakref
from contextlib import suppress
from pathlib import Path

PREFIX = "autotune-scratch-"
"""Prefix of every folder's name."""
GRACE_SECONDS = 60.0
"""Age from which a folder counts as left behind: a younger one may not have its lock yet."""

_cleaned_folders: set[Path] = set()
"""Folders that this process has looked through."""
_lock = threading.Lock()


class ScratchFolder(tempfile.TemporaryDirectory[str]):
    """A temporary folder, removed at the end of a `with` block, with this object, or by a later process.

    Args:
        use: word in the folder's name that tells people its purpose.
    """

    def __init__(self, use: str) -> None:
        super().__init__(prefix=f"{PREFIX}{use}-")
        descriptor = os.open(self.name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, descriptor)
        with suppress(OSError):  # a file system without locks, where folders stay
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        parent = Path(self.name).parent
        with _lock:
            first = parent not in _cleaned_folders
            _cleaned_folders.add(parent)
        if first:
            remove_stale(parent)


def remove_stale(folder: Path) -> None:
    """Removes scratch folders of this user in `folder` whose process has gone."""
    oldest = time.time() - GRACE_SECONDS
    for path in folder.glob(f"{PREFIX}*"):
        with suppress(OSError):  # another process was faster, or it is not ours
            facts = path.lstat()
            if facts.st_uid == os.getuid() and facts.st_mtime < oldest:
                _remove(path)


def _remove(path: Path) -> None:
    """Removes a folder unless a process holds it.

    Raises:
        OSError: a process does, or there is no such folder.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path, ignore_errors=True)
    finally:
        os.close(descriptor)
