"""The child's side of `measure.child`: its options, its channel, and the loop that answers requests."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

from measure.channel import Channel
from measure.host import end_with
from measure.wire import pack, unpack

Message = tuple[dict[str, Any], bytes]
"""Header, as plain data, and the bytes that go with it."""
Handler = Callable[[dict[str, Any], bytes], Message]
"""Function that answers one request: header and blob to header and blob."""


def open_parent() -> tuple[dict[str, Any], Channel]:
    """Confines this process as its parent says, once, and returns its options and the channel to the parent.

    Option `cores` is the affinity of the process. With `parent`, the process ends when the thread that started it does.
    """
    options: dict[str, Any] = json.loads(sys.argv[1])
    os.set_inheritable(options["descriptor"], False)  # processes started here must not keep the channel open
    if "cores" in options:
        os.sched_setaffinity(0, options["cores"])
    if "parent" in options:
        end_with(options["parent"])
    return options, Channel(options["descriptor"])


def requests(channel: Channel) -> Iterator[Message]:
    """Yields requests until the parent hangs up."""
    while (frame := channel.receive()) is not None:
        yield unpack(frame)


def answer_requests(channel: Channel, handle: Handler, refusals: tuple[type[Exception], ...] = ()) -> None:
    """Answers requests until the parent hangs up.

    Args:
        channel: channel to the parent.
        handle: function that answers a request. An exception ends the process; the parent reads it in its last words.
        refusals: exceptions that are sent as answers, with their sentence as `refused` in the header.
    """
    for request, blob in requests(channel):
        try:
            header, result = handle(request, blob)
        except refusals as error:
            header, result = {"refused": str(error).strip() or type(error).__name__}, b""
        channel.send(pack(header, result))
