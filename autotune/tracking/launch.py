"""The uploader as a process of its own, which outlives the driver where it is not done."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from autotune.tracking.spool import pending
from autotune.tracking.uploader import only_uploader

_COMMAND = "from autotune.tracking.uploader import main; main()"
_POLL = 0.05


class Uploads:
    """Uploads of a run that go on beside it.

    Args:
        backend: a name of `registry.BACKENDS`.
    """

    def __init__(self, backend: str) -> None:
        self._backend = backend
        self._process: subprocess.Popen[bytes] | None = None
        self._assigned = False

    def prepare(self) -> None:
        """Starts the process, if it does not live; it imports what it needs and waits for a folder."""
        if self._process is None or self._process.poll() is not None:
            self._assigned = False
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _COMMAND, self._backend],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path or "." for path in sys.path)},
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # neither Ctrl-C nor the end of the terminal is meant for it
            )

    def start(self, run_folder: Path) -> None:
        """Lets the process upload from a run folder, which it does until it is done."""
        self.prepare()
        if self._process is not None and self._process.stdin is not None and not self._assigned:
            self._assigned = True
            with suppress(BrokenPipeError):  # it has died, and the next call starts another
                self._process.stdin.write(f"{run_folder.absolute()}\n".encode())
                self._process.stdin.close()

    def at_work(self, run_folder: Path) -> bool:
        """Tells whether a process uploads from a run folder: this one, or an earlier one."""
        if self._process is not None and self._process.poll() is None:
            return True
        with only_uploader(run_folder) as alone:
            return not alone

    def stop(self) -> None:
        """Lets a process go that was prepared for nothing."""
        if self._process is not None and self._process.stdin is not None and not self._assigned:
            self._process.stdin.close()


def wait(spool: Path, seconds: float, at_work: Callable[[], bool]) -> bool:
    """Waits until a spool is uploaded, which it then says, or for this long, or until nobody is at work on it.

    A problem does not end the wait: it may be an old one, and the uploader retries once the run has ended.
    """
    end = time.monotonic() + seconds
    while pending(spool):
        if time.monotonic() >= end or not at_work():
            return not pending(spool)
        time.sleep(_POLL)
    return True
