"""One thread for the background jobs of the process, one after another; it ends with the process.

The thread is made for the first job. At exit, before any thread of the process is gone, the running job is asked to
stop. The process waits a few seconds for it, so that the job can end its own processes.
"""

from __future__ import annotations

import concurrent.futures.thread  # its own end at exit comes after ours, which may need its threads
import logging
import os
import queue
import threading
from collections.abc import Callable
from typing import Protocol

_LOG = logging.getLogger(__name__)

EXIT_SECONDS = 5.0
"""Time that the process waits at its exit for the running job."""

assert concurrent.futures.thread


class Job(Protocol):
    """A task of the background thread.

    Attributes:
        name: name of the job in messages about failures.
    """

    name: str

    def run(self, stop: Callable[[], bool]) -> None:
        """Does it, in the thread; returns or raises soon after `stop` says so."""


class Background:
    """A thread with a queue of jobs.

    A failed job is logged with the reason, and the next one begins.
    """

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Job] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._stopping = threading.Event()

    def add(self, job: Job) -> None:
        """Appends a job; the thread is started where it is not there, as in a child that was forked."""
        with self._lock:
            if self._stopping.is_set():
                return
            self._jobs.put(job)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._serve, name="autotune background", daemon=True)
                self._thread.start()

    def stop(self, seconds: float = EXIT_SECONDS) -> bool:
        """Asks the job under way to stop, takes up no other, and waits so long; whether it has ended."""
        with self._lock:
            self._stopping.set()
            thread = self._thread
        if thread is not None:
            self._jobs.put(_NOTHING)  # wakes it up
            thread.join(seconds)
        return thread is None or not thread.is_alive()

    def _serve(self) -> None:
        while not self._stopping.is_set():
            job = self._jobs.get()
            if self._stopping.is_set():
                return
            try:
                job.run(self._stopping.is_set)
            except Exception as error:  # nobody waits for this thread: what went wrong must be said here
                if not self._stopping.is_set():
                    _LOG.warning("%s failed, and what runs stays as it is: %s", job.name, _reason(error))
            del job


class _Nothing:
    name = "nothing"

    def run(self, stop: Callable[[], bool]) -> None:
        """Does nothing."""


_NOTHING = _Nothing()
_LOCK = threading.Lock()
_OF_PROCESS: list[Background] = []


def of_process() -> Background:
    """Returns the background thread of this process."""
    with _LOCK:
        if not _OF_PROCESS:
            _OF_PROCESS.append(Background())
            os.register_at_fork(after_in_child=_OF_PROCESS.clear)  # a child has the jobs and nobody who does them
            # `atexit` is too late: by then no thread may start another one, which ending children takes
            # A thread that waits for the main one comes at no certain time beside the end of `concurrent.futures`,
            # whose threads ending children needs, too. Python has no public hook before both.
            threading._register_atexit(_OF_PROCESS[0].stop)  # type: ignore[attr-defined]
        return _OF_PROCESS[0]


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).strip() or 'no message').splitlines()[0]}"
