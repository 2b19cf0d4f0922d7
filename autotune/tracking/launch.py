"""The uploader as a process of its own, which outlives the driver where it is not done."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from autotune.tracking.spool import pending, read_state

_COMMAND = "from autotune.tracking.uploader import main; main()"
_LOG = "uploader.log"
_POLL = 0.05


class Uploads:
    """Uploads of a run that go on beside it.

    Args:
        run_folder: of the run.
        spool: that it writes to.
    """

    def __init__(self, run_folder: Path, spool: Path) -> None:
        self._run_folder, self._spool = run_folder, spool
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts the uploader, if it is not at work."""
        if self._process is not None and self._process.poll() is None:
            return
        with open(self._spool / _LOG, "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _COMMAND, str(self._run_folder.absolute())],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path or "." for path in sys.path)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # neither Ctrl-C nor the end of the terminal is meant for it
            )

    def wait(self, seconds: float) -> bool:
        """Waits until everything is uploaded, which it then says, or for this long, or for the first problem."""
        end = time.monotonic() + seconds
        while pending(self._spool):
            if time.monotonic() >= end or self.problem():
                return False
            time.sleep(_POLL)
        return True

    def problem(self) -> str:
        """Why the last try failed; "" where it did not."""
        return read_state(self._spool).problem
