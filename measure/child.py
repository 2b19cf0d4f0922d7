"""A disposable worker process: started fresh (never forked), spoken to over one socket, killed at will.

It is started as a new interpreter and not through `multiprocessing`, because that would import the user's
main module into every worker, and with it whatever that module imports. Messages are JSON and bytes, never
pickles.
"""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from measure.errors import ErrorClass
from measure.host import worker_environment
from measure.oom import oom_kills
from measure.wire import pack, unpack

WORKER = "measure.worker"
"""Module whose `main` a process runs, where no other is asked for."""
_TAIL_BYTES = 2000
HELD_SECONDS = 10.0
"""After which a killed process that has not ended is left behind."""


class Child:
    """One worker process.

    Args:
        options: what the program reads; `measure.worker.main` role, executor, cores, memory limit.
        program: module whose `main` it runs. It finds its options, and the `descriptor` of its socket among them, as
            JSON in its first argument.
    """

    def __init__(self, options: Mapping[str, Any], program: str = WORKER) -> None:
        ours, theirs = socket.socketpair()
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the process)
        with theirs:
            arguments = json.dumps({**options, "descriptor": theirs.fileno()})
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", f"from {program} import main; main()", arguments],
                env=worker_environment([path or "." for path in sys.path]),
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=self._output,
                start_new_session=True,  # Ctrl-C is the parent's to handle
            )
        self._oom_kills = oom_kills()
        self.connection: Connection[Any, Any] = Connection(ours.detach())

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def send(self, header: Mapping[str, Any], blob: bytes = b"") -> None:
        """Sends a message; to a dead process it is lost, which the next `receive` tells."""
        self._oom_kills = oom_kills()
        with suppress(OSError):
            self.connection.send_bytes(pack(header, blob))

    def receive(self) -> tuple[dict[str, Any], bytes] | None:
        """Receives a message; None when the process has died."""
        try:
            return unpack(self.connection.recv_bytes())
        except (EOFError, OSError):
            return None

    def kill(self) -> int:
        """Ends the process, however stuck it is, and returns its exit code (negative: a signal).

        One that a driver does not let go, as for a kernel that never ends, is left behind, and counts as killed.
        """
        self.connection.close()
        self._process.kill()
        try:
            return self._process.wait(HELD_SECONDS)
        except subprocess.TimeoutExpired:
            return -signal.SIGKILL

    def reap(self) -> int:
        """Exit code of a process that has closed its end of the socket."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=1.0)
        return self.kill()

    def death(self) -> tuple[int, Death]:
        """Exit code of a process that has closed its end of the socket, and why it ended."""
        code, before = self.reap(), self._oom_kills
        after = oom_kills()
        count = None if before is None or after is None else after - before
        return code, cause_of_death(code, self.last_words(), count)

    def last_words(self) -> str:
        """End of what the process wrote to its standard streams."""
        size = self._output.seek(0, 2)
        self._output.seek(max(0, size - _TAIL_BYTES))
        return self._output.read().decode(errors="replace").strip()

    def close(self) -> None:
        """Ends the process and frees what belongs to it."""
        self.kill()
        self._output.close()


@dataclass(frozen=True)
class Death:
    """How a process ended of itself.

    Attributes:
        error: class of the failure.
        how: the same in words, after "the process".
        outside: whether somebody else ended it, for no reason that its work has given.
    """

    error: ErrorClass
    how: str
    outside: bool = False


def cause_of_death(code: int, last_words: str, killed_for_memory: int | None = 0) -> Death:
    """Why a process died.

    Args:
        code: exit code, negative for a signal.
        last_words: end of its output.
        killed_for_memory: processes that the system killed for memory meanwhile; None where it does not count them.
    """
    name = f"exit code {code}" if code >= 0 else signal.Signals(-code).name
    said = f": {last_words[-500:]}" if last_words else ""
    if -code == signal.SIGKILL:
        if killed_for_memory:
            return Death(ErrorClass.out_of_memory, f"was killed by the system for its memory{said}")
        why = ", and the system does not say whether for its memory" if killed_for_memory is None else ""
        return Death(ErrorClass.crash, f"was killed from outside (SIGKILL){why}{said}", outside=True)
    if any(hint in last_words.lower() for hint in ("out of memory", "bad_alloc", "memoryerror")):
        return Death(ErrorClass.out_of_memory, f"ran out of memory ({name}){said}")
    return Death(ErrorClass.crash, f"died ({name}){said}")
