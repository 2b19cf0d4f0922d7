"""Child processes: new interpreters, asked by messages within a time-out, killed with all that they start.

Our processes are new interpreters instead of `multiprocessing`'s. That would import the user's main module into every
worker, and with it whatever that module imports. Messages are JSON and bytes, never pickles. The child's side is
`measure.child_main`.
"""

from __future__ import annotations

import json
import math
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from measure.channel import MOST_BYTES, Channel, ChannelError, LineChannel
from measure.closing import Closing
from measure.errors import ErrorClass, MeasureError
from measure.host import worker_environment
from measure.oom import oom_kills
from measure.wire import pack, unpack

WORKER = "measure.worker"
"""Default module whose `main` a process runs."""
_TAIL_BYTES = 2000  # bytes of a process's output that count as its last words
HELD_SECONDS = 10.0
"""Seconds after which a killed process that has not ended is left behind."""
SEND_SECONDS = 60.0
"""Seconds after which a process that does not take a message counts as stuck."""
_POLL_SECONDS = 0.25  # seconds between two calls of `stop`
_WAIT_OPTIONS = os.WEXITED | os.WNOHANG | os.WNOWAIT


@dataclass(frozen=True)
class Death:
    """The cause of a process's end.

    Attributes:
        error: class of the failure.
        how: description of the cause, to follow "the process".
        outside: whether somebody else ended it, for no reason that its work has given.
    """

    error: ErrorClass
    how: str
    outside: bool = False

    @property
    def brief(self) -> str:
        """Description in one line: of the process's last words, such as a traceback, only the last line."""
        first, *others = self.how.splitlines()
        return f"{first.partition(': ')[0]}: {others[-1]}" if others else first


class ChildError(MeasureError, RuntimeError):
    """A process that did not answer: it died, took too long, or broke the protocol.

    Attributes:
        death: cause of the end; the process has always ended.
    """

    def __init__(self, death: Death) -> None:
        super().__init__(f"a process must answer, but it {death.how}")
        self.death = death


class Process(Closing):
    """A process that leads a session of its own, so that what it starts ends with it.

    Args:
        command: words of the command.
        channel: channel to the process.
        options: options of `subprocess.Popen`.
    """

    def __init__(self, command: Sequence[str], channel: Channel, **options: Any) -> None:
        self.channel = channel
        try:
            # In a session of its own, so that Ctrl-C reaches only the parent.
            self._process = subprocess.Popen(command, start_new_session=True, **options)
        except BaseException:
            channel.close()
            raise
        self._oom_kills = oom_kills()
        self._fault: Death | None = None  # reason why this side has given it up

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Tells whether it has not ended yet; one that has stays unreaped, so that its process id is not reused."""
        try:
            return self._process.returncode is None and not os.waitid(os.P_PID, self.pid, _WAIT_OPTIONS)
        except ChildProcessError:  # the system reaps children by itself
            return False

    def put(self, message: bytes, seconds: float = SEND_SECONDS) -> None:
        """Sends a message; gives up a stuck process. A dead one loses it, which the next `take` reports."""
        self._oom_kills = oom_kills()
        try:
            self.channel.send(message, seconds)
        except ConnectionError:
            pass
        except TimeoutError:
            self._give_up(ErrorClass.run_timeout, f"did not take a message within {seconds:g} s")

    def take(self, seconds: float = math.inf) -> bytes | None:
        """Receives a message; None when the process has died or breaks the protocol.

        Raises:
            TimeoutError: the message did not come in time.
        """
        if self._fault is not None:
            return None
        try:
            return self.channel.receive(seconds)
        except ChannelError as error:
            self._give_up(ErrorClass.unknown, f"broke the protocol: {error}")
            return None

    def exchange(self, message: bytes, seconds: float = math.inf, stop: Callable[[], bool] | None = None) -> bytes:
        """Sends a request and returns its answer.

        A process that does not answer is killed. So is a process whose answer is no longer wanted: that answer would be
        taken for the answer to the next request.

        Args:
            message: the request.
            seconds: limit for the whole answer.
            stop: asked while waiting; if it returns True, KeyboardInterrupt is raised.

        Raises:
            ChildError: there is no answer.
        """
        end = time.monotonic() + seconds
        try:
            self.put(message, min(seconds, SEND_SECONDS))
        except BaseException:
            self.kill()
            raise
        return self.follow(end - time.monotonic(), stop, seconds)

    def follow(self, seconds: float, stop: Callable[[], bool] | None = None, total: float | None = None) -> bytes:
        """Returns the next message of an answer, see `exchange`.

        Args:
            seconds: limit for the message.
            stop: see `exchange`.
            total: limit in seconds that the error message names instead.

        Raises:
            ChildError: the process did not send a message.
        """
        end = time.monotonic() + seconds
        try:
            while True:
                left = max(0.0, end - time.monotonic())
                try:
                    answer = self.take(left if stop is None else min(_POLL_SECONDS, left))
                    break
                except TimeoutError:
                    if time.monotonic() >= end:
                        limit = seconds if total is None else total
                        self._give_up(ErrorClass.run_timeout, f"was killed after its time-out of {limit:g} s")
                    if stop is not None and stop():
                        raise KeyboardInterrupt from None
        except BaseException:
            self.kill()
            raise
        if answer is None:
            raise ChildError(self.death()[1])
        return answer

    def kill(self) -> int:
        """Ends the process, however stuck it is, and all that it has started; returns its exit code, see `Popen`.

        A process that a driver does not let go, such as a kernel that never ends, is left behind and counts as killed.
        """
        self.channel.close()
        if self._fault is None and self.alive:
            self._give_up(ErrorClass.crash, "was ended")
        if self._process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
        try:
            return self._process.wait(HELD_SECONDS)
        except subprocess.TimeoutExpired:
            return -signal.SIGKILL

    def reap(self) -> int:
        """Ends a process that has hung up, and returns its exit code."""
        if self._fault is None:
            self.wait(1.0)
            if self.alive:
                self._give_up(ErrorClass.crash, "hung up and did not end")
        return self.kill()

    def wait(self, seconds: float) -> None:
        """Waits until the process ends by itself, or for this long."""
        end, pause = time.monotonic() + seconds, 0.0005
        while self.alive and time.monotonic() < end:
            time.sleep(pause)
            pause = min(2 * pause, 0.02)

    def death(self) -> tuple[int, Death]:
        """Returns the exit code of a process that has hung up or was given up, and the cause of its end."""
        code, before = self.reap(), self._oom_kills
        if self._fault is not None:
            return code, self._fault
        after = oom_kills()
        count = None if before is None or after is None else after - before
        return code, cause_of_death(code, self.last_words(), count)

    def last_words(self) -> str:
        """Returns the end of what the process wrote to its standard streams, as far as that is kept."""
        return ""

    def close(self) -> None:
        """Ends the process and frees what belongs to it; may be called twice."""
        self.kill()

    def _give_up(self, error: ErrorClass, how: str) -> None:
        self._fault = Death(error, how)


class Child(Process):
    """A process of this project that answers messages.

    Args:
        options: options that the program reads by `measure.child_main.open_parent`; for `measure.worker.main` role,
            executor, cores and memory limit.
        program: module whose `main` it runs.
        path: folders of its packages; None: those of this process.
        prelude: statement that it runs first.
        most: bytes of the largest message that it may send.
    """

    def __init__(
        self,
        options: Mapping[str, Any],
        program: str = WORKER,
        path: Sequence[str] | None = None,
        prelude: str = "",
        most: int = MOST_BYTES,
    ) -> None:
        ours, theirs = socket.socketpair()
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the process)
        with theirs:
            code = "\n".join(filter(None, (prelude, f"from {program} import main; main()")))
            super().__init__(
                [sys.executable, "-P", "-c", code, json.dumps({**options, "descriptor": theirs.fileno()})],
                Channel(ours.detach(), most=most),
                env=worker_environment([folder or "." for folder in (sys.path if path is None else path)]),
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=self._output,
            )

    def send(self, header: Mapping[str, Any], blob: bytes = b"") -> None:
        """Sends a message, see `put`."""
        self.put(pack(header, blob))

    def receive(self, seconds: float = math.inf) -> tuple[dict[str, Any], bytes] | None:
        """Receives a message, see `take`."""
        frame = self.take(seconds)
        return None if frame is None else self._unpack(frame)

    def ask(
        self,
        header: Mapping[str, Any],
        blob: bytes = b"",
        seconds: float = math.inf,
        stop: Callable[[], bool] | None = None,
    ) -> tuple[dict[str, Any], bytes]:
        """Sends a request and returns its answer, see `exchange`.

        Raises:
            ChildError: the process did not answer.
        """
        return self._answer(self.exchange(pack(header, blob), seconds, stop))

    def next_answer(self, seconds: float) -> tuple[dict[str, Any], bytes]:
        """Returns the next message of an answer that has several.

        Raises:
            ChildError: the process did not send a message.
        """
        return self._answer(self.follow(seconds))

    def _answer(self, frame: bytes) -> tuple[dict[str, Any], bytes]:
        answer = self._unpack(frame)
        if answer is None:
            raise ChildError(self.death()[1])
        return answer

    def last_words(self) -> str:
        size = self._output.seek(0, 2)
        self._output.seek(max(0, size - _TAIL_BYTES))
        return self._output.read().decode(errors="replace").strip()

    def close(self) -> None:
        super().close()
        self._output.close()

    def _unpack(self, frame: bytes) -> tuple[dict[str, Any], bytes] | None:
        try:
            header, blob = unpack(frame)
            if not isinstance(header, dict):
                raise ValueError(f"a header must be an object, but got {header!r:.80}")
            return header, blob
        except ValueError as error:
            self._give_up(ErrorClass.unknown, f"broke the protocol: {error}")
            return None


class Program(Process):
    """A foreign program, which reads lines and answers each with one; its standard error is this process's.

    Args:
        command: words of the command.
        most: bytes of the longest line that it may answer with.

    Raises:
        OSError, ValueError, IndexError: the program cannot be started.
    """

    def __init__(self, command: Sequence[str], most: int = MOST_BYTES) -> None:
        reads, output = os.pipe()
        source, writes = os.pipe()
        try:
            super().__init__(command, LineChannel(reads, writes, most), stdin=source, stdout=output)
        finally:
            os.close(output)
            os.close(source)


def cause_of_death(code: int, last_words: str, killed_for_memory: int | None = 0) -> Death:
    """Explains why a process died.

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
