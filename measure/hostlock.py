"""Lock shared by all runs on one host: many may build at a time, one may time, and never both."""

from __future__ import annotations

import fcntl
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from measure.errors import PoolError
from measure.notices import WaitNotice
from search_space.folders import FolderError, runtime_folder

log = logging.getLogger(__name__)

POLL_SECONDS = 0.25
"""Seconds after which a wait for the machine checks whether it is to stop."""
_MODES = {"build": fcntl.LOCK_SH, "time": fcntl.LOCK_EX}


class HostLock:
    """Advisory lock on a file, which the system releases if its holder dies.

    Args:
        path: path of the lock file; runs with the same one exclude each other.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self.path = Path(path) if path is not None else default_path()
        self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        self.phase: str | None = None
        self._notice = WaitNotice()

    def acquire(self, phase: str, timeout: float) -> bool:
        """Takes the lock for `build` (shared) or `time` (exclusive), and releases the one held before.

        Args:
            phase: `build` or `time`.
            timeout: seconds to wait at most.

        Returns:
            Whether the lock is held for `phase` now.
        """
        if self.phase == phase:
            return True
        self.release()  # the system's exchange of modes is not atomic either
        deadline = time.monotonic() + timeout
        while True:
            try:
                fcntl.flock(self._descriptor, _MODES[phase] | fcntl.LOCK_NB)
            except BlockingIOError:
                self._notice.still("other programs that build or time kernels on this host")
                remaining = deadline - time.monotonic()
                if remaining <= 0:
                    return False
                time.sleep(min(0.005, remaining))
            else:
                self._notice.over()
                self.phase = phase
                return True

    def release(self) -> None:
        """Releases the lock, so that others can build and time."""
        if self.phase:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            self.phase = None

    def close(self) -> None:
        """Releases the lock for good; may be called twice."""
        self.release()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


@contextmanager
def alone(timeout: float = 600.0, stop: Callable[[], bool] | None = None) -> Iterator[None]:
    """Waits until nothing else of this package builds or times on this host, and keeps others waiting during the block.

    Args:
        timeout: seconds after which the block is entered all the same, with a warning.
        stop: asked while it waits; if it returns True, KeyboardInterrupt is raised.
    """
    lock, end = HostLock(), time.monotonic() + timeout
    try:
        while not (acquired := lock.acquire("time", min(POLL_SECONDS, max(0.0, end - time.monotonic())))):
            if stop is not None and stop():
                raise KeyboardInterrupt
            if time.monotonic() >= end:
                break
        if not acquired:
            log.warning("other programs build or time on this host for %g s already: timings are disturbed", timeout)
        yield
    finally:
        lock.close()


def default_path() -> Path:
    """Returns the path of the lock file of this user on this host.

    Raises:
        PoolError: the folder for it belongs to another user.
    """
    try:
        return runtime_folder() / "autotune-measure.lock"
    except FolderError as error:
        raise PoolError(str(error)) from None
