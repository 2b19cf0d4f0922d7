"""Messages of a child process that coroutines wait for, each with a time-out."""

from __future__ import annotations

import asyncio
import math
from typing import Any

from measure.child import Child

Message = tuple[dict[str, Any], bytes]
"""Header and blob of a frame, see `measure.wire`."""


class Messages:
    """Messages of a child process.

    The loop watches its socket from the first wait on, which is cheaper than adding a reader for each message.

    Args:
        child: the process.

    Attributes:
        limit: time-out of the current or last wait, seconds.
    """

    def __init__(self, child: Child) -> None:
        self._child = child
        self._loop: asyncio.AbstractEventLoop | None = None  # the loop that watches the socket
        self._early: list[Message | None] = []  # messages that came before a call of `next`
        self._next_message: asyncio.Future[Message | None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.limit = self._prepared_limit = math.inf

    async def next(self, seconds: float, prepared_limit: float = math.inf) -> Message | None:
        """Returns the next message other than `prepared_limit`; None when the child has died.

        Args:
            seconds: limit until the message comes, or the child reports that it is prepared.
            prepared_limit: limit from that report on.

        Raises:
            TimeoutError: the message did not come in time.
        """
        if self._early:
            return self._early.pop(0)
        loop = asyncio.get_running_loop()
        awaited: asyncio.Future[Message | None] = loop.create_future()
        self._next_message, self._prepared_limit = awaited, prepared_limit
        if self._loop is None:
            self._loop = loop
            loop.add_reader(self._child.channel.fileno(), self._receive)
        self._allow(loop, seconds)
        try:
            return await awaited
        finally:
            self._stop_timer()

    def close(self) -> None:
        """Stops listening; to be called before the child is closed. May be called twice."""
        if self._loop is not None:
            self._loop.remove_reader(self._child.channel.fileno())
            self._loop = None

    def _receive(self) -> None:
        """Receives the message that has arrived."""
        assert self._loop is not None
        try:
            message = self._child.receive(0.0)
        except TimeoutError:  # the message is incomplete
            return
        if message is None:
            self.close()
        elif message[0]["stage"] == "prepared":
            self._stop_timer()
            self._allow(self._loop, self._prepared_limit)
            return
        if self._next_message is None or self._next_message.done():
            self._early.append(message)
        else:
            self._next_message.set_result(message)

    def _allow(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        self.limit, self._timer = seconds, loop.call_later(seconds, self._late)

    def _stop_timer(self) -> None:
        assert self._timer is not None
        self._timer.cancel()

    def _late(self) -> None:
        if self._next_message is not None and not self._next_message.done():
            self._next_message.set_exception(TimeoutError())
