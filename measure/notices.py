"""Notices of long waits: after two seconds a wait says, once, what it waits for."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

NOTICE_SECONDS = 2.0
"""Seconds after which a wait is reported."""

log = logging.getLogger(__name__)


class WaitNotice:
    """Reports a wait that polls: once, when it has lasted, and again only after `over`.

    Args:
        say: shows a sentence to the user; by default a warning in the log, which is shown where nobody set one up.
    """

    def __init__(self, say: Callable[[str], None] = log.warning) -> None:
        self._say = say
        self._since: float | None = None
        self._said = False

    def still(self, what: str) -> None:
        """The wait for `what` goes on."""
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        if not self._said and now - self._since >= NOTICE_SECONDS:
            self._said = True
            self._say(f"waiting for {what}")

    def over(self) -> None:
        """The wait has ended; what comes is another one."""
        self._since, self._said = None, False


@contextmanager
def notice_if_slow(what: str, say: Callable[[str], None] = log.warning) -> Iterator[None]:
    """Says what is done, in a sentence, if the block lasts."""
    timer = threading.Timer(NOTICE_SECONDS, say, [what])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
