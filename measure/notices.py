"""Notifications of waits that last longer than two seconds, each with its reason."""

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
    """A notice of a wait that polls: reports once that it lasts, and again only after `over`.

    Args:
        say: function that shows a sentence to the user; by default a warning in the log, shown without any set-up.
    """

    def __init__(self, say: Callable[[str], None] = log.warning) -> None:
        self._say = say
        self._since: float | None = None
        self._is_announced = False

    def still(self, what: str) -> None:
        """Notes that the wait for `what` goes on; reports it if it has lasted long enough."""
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        if not self._is_announced and now - self._since >= NOTICE_SECONDS:
            self._is_announced = True
            self._say(f"waiting for {what}")

    def over(self) -> None:
        """Ends the wait; the next call of `still` begins another one."""
        self._since, self._is_announced = None, False


@contextmanager
def notice_if_slow(what: str, say: Callable[[str], None] = log.warning) -> Iterator[None]:
    """Reports `what` in a sentence, if the block lasts."""
    timer = threading.Timer(NOTICE_SECONDS, say, [what])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
