"""The uploader as a process of its own, which outlives the driver where it is not done."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from autotune.tracking.spool import pending
from autotune.tracking.uploader import only_uploader
from measure.child import Child

_PROGRAM = "autotune.tracking.uploader"
_POLL = 0.05


class Uploads:
    """Uploads of a run that go on beside it.

    Args:
        backend: a name of `registry.BACKENDS`.
    """

    def __init__(self, backend: str) -> None:
        self._backend = backend
        self._child: Child | None = None  # neither Ctrl-C nor the terminal's end is meant for its session
        self._has_folder = False

    def prepare(self) -> None:
        """Starts the process, if it does not live; it imports what it needs and waits for a folder."""
        if self._child is None or not self._child.alive:
            self._let_go()
            self._child, self._has_folder = Child({"backend": self._backend}, _PROGRAM), False

    def start(self, run_folder: Path) -> None:
        """Lets the process upload from a run folder, which it does until it is done."""
        self.prepare()
        if self._child is not None and not self._has_folder:
            self._has_folder = True
            self._child.send({"folder": str(run_folder.absolute())})  # one that has died is replaced by the next call
            self._child.channel.close()

    def at_work(self, run_folder: Path) -> bool:
        """Tells whether a process uploads from a run folder: this one, or an earlier one."""
        if self._child is not None and self._child.alive:
            return True
        with only_uploader(run_folder) as alone:
            return not alone

    def stop(self) -> None:
        """Lets a process go that was prepared for nothing."""
        if not self._has_folder:
            self._let_go()

    def _let_go(self) -> None:
        """Hangs up, which ends a process that has no folder."""
        if self._child is not None:
            self._child.channel.close()


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
