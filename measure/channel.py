"""Messages over a pair of descriptors: framed, within a time and of a bounded size, on either side of a child process.

A channel reads nothing beyond the requested frame, so that its descriptor stays readable while a message is left.
"""

from __future__ import annotations

import math
import os
import select
import struct
import time

MOST_BYTES = 1 << 30
"""Default limit of a received message, bytes."""

_LENGTH = struct.Struct("<Q")
_PART = 1 << 20  # bytes to read at a time


class ChannelError(RuntimeError):
    """A message that breaks the protocol: too long."""


class Channel:
    """Frames: the length of a message in 8 bytes, then the message.

    Args:
        reads: descriptor that messages come from; the channel closes both descriptors.
        writes: descriptor that messages go to; None: the same.
        most: bytes of the largest message that is received.
    """

    def __init__(self, reads: int, writes: int | None = None, most: int = MOST_BYTES) -> None:
        self._reads, self._writes, self._most = reads, reads if writes is None else writes, most
        self._buffer = bytearray()
        self._is_closed = False
        for descriptor in (self._reads, self._writes):
            os.set_blocking(descriptor, False)

    def fileno(self) -> int:
        """Returns the descriptor that is readable when a message comes; -1 once it is closed."""
        return -1 if self._is_closed else self._reads

    def send(self, message: bytes, seconds: float = math.inf) -> None:
        """Sends a message.

        Raises:
            TimeoutError: the other side did not take it in time.
            ConnectionError: the other side is gone.
        """
        if self._is_closed:
            raise BrokenPipeError("a channel must be open to send")
        left, end = memoryview(self._frame(message)), time.monotonic() + seconds
        while left:
            try:
                left = left[os.write(self._writes, left) :]
            except BlockingIOError:
                _wait(self._writes, select.POLLOUT, end)

    def receive(self, seconds: float = math.inf) -> bytes | None:
        """Receives a message; returns None when the other side is gone.

        After a time-out the bytes received so far are kept for the next call.

        Raises:
            TimeoutError: the message did not arrive in time.
            ChannelError: the message is too long.
        """
        end = time.monotonic() + seconds
        while not self._is_closed:
            if (message := self._take()) is not None:
                return message
            try:
                part = os.read(self._reads, self._missing())
            except BlockingIOError:
                _wait(self._reads, select.POLLIN, end)
                continue
            except ConnectionError:
                return None
            if not part:
                return None
            self._buffer += part
        return None

    def close(self) -> None:
        """Hangs up; may be called twice."""
        if not self._is_closed:
            self._is_closed = True
            for descriptor in {self._reads, self._writes}:
                os.close(descriptor)

    def _frame(self, message: bytes) -> bytes:
        return _LENGTH.pack(len(message)) + message

    def _take(self) -> bytes | None:
        """Takes a message out of the buffer; None where it is not complete."""
        if self._missing():
            return None
        message = bytes(memoryview(self._buffer)[_LENGTH.size :])
        self._buffer = bytearray()
        return message

    def _missing(self) -> int:
        """Returns how many bytes to read next, at most."""
        if (head := _LENGTH.size - len(self._buffer)) > 0:
            return head
        (size,) = _LENGTH.unpack_from(self._buffer)
        self._check(size)
        return min(_PART, _LENGTH.size + int(size) - len(self._buffer))

    def _check(self, size: int) -> None:
        if size > self._most:
            raise ChannelError(f"a message must have at most {self._most} bytes, but got {size}")


class LineChannel(Channel):
    """A channel of lines, for programs that do not speak this project's protocol; a message has no line break."""

    def _frame(self, message: bytes) -> bytes:
        return message + b"\n"

    _searched_bytes = 0  # bytes of the buffer without a line break

    def _take(self) -> bytes | None:
        end = self._buffer.find(b"\n", self._searched_bytes)
        self._searched_bytes = len(self._buffer) if end < 0 else 0
        self._check(self._searched_bytes if end < 0 else end)
        if end < 0:
            return None
        line, self._buffer = bytes(self._buffer[:end]), self._buffer[end + 1 :]
        return line

    def _missing(self) -> int:
        return _PART


def _wait(descriptor: int, event: int, end: float) -> None:
    """Waits until a descriptor is ready.

    Raises:
        TimeoutError: `time.monotonic()` has reached `end`.
    """
    left = end - time.monotonic()
    poll = select.poll()
    poll.register(descriptor, event)
    if not poll.poll(None if left == math.inf else max(0.0, math.ceil(1e3 * left))):
        raise TimeoutError
