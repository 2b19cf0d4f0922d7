"""Numbers of threads: the cores that a process may use, and the limits of requests. Processes that only run import
this.
"""

from __future__ import annotations

import os

MOST_THREADS = 1024
"""Threads of a kernel on any machine, at most: workers may have more cores than this host."""


def host_cores() -> int:
    """Counts the processors that this process may run on."""
    return len(allowed_cores())


def allowed_cores() -> tuple[int, ...]:
    """Lists the logical cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def check_threads(threads: int, most: int | None = None) -> None:
    """Refuses a number of threads before a measurement that would take forever, or be labelled falsely.

    Args:
        threads: requested number of threads.
        most: greatest allowed number; None: the cores that this process may use.

    Raises:
        ValueError: fewer than 1, or more.
    """
    said = "" if most is not None else ", the cores that this process may use"
    most = host_cores() if most is None else most
    if not isinstance(threads, int) or not 1 <= threads <= most:
        raise ValueError(f"`threads` must be from 1 to {most}{said}, but got threads={threads!r}")
