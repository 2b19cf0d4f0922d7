"""Locks on files, which the system releases when their process dies."""

from __future__ import annotations

import fcntl
import time

ALONE, SHARED = fcntl.LOCK_EX, fcntl.LOCK_SH


def lock_within(seconds: float, descriptor: int, mode: int = ALONE, pause: float = 0.01) -> bool:
    """Takes a lock that others may hold; returns whether it succeeded.

    Args:
        seconds: longest wait in seconds.
        descriptor: descriptor of the open file.
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
