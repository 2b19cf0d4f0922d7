"""Locks on files, which the system lets go of when their process dies."""

from __future__ import annotations

import fcntl
import time

ALONE, SHARED = fcntl.LOCK_EX, fcntl.LOCK_SH


def lock_within(seconds: float, descriptor: int, mode: int = ALONE, pause: float = 0.01) -> bool:
    """Takes a lock that others may hold; whether it could be had.

    Args:
        seconds: to wait for it at most.
        descriptor: of the open file.
        mode: `ALONE` or `SHARED`.
        pause: seconds between attempts.
    """
    end = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(descriptor, mode | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= end:
                return False
            time.sleep(pause)
        else:
            return True
