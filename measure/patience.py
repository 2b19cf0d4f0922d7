"""Waits that last say what they wait for: after two seconds, once."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PATIENCE = 2.0
"""Seconds after which the user wants to know."""

log = logging.getLogger(__name__)


class Patience:
    """A wait that looks again and again: says what it waits for, once it has lasted, and again only after `over`.

    Args:
        say: shows a sentence to the user; by default a warning in the log, which is shown where nobody set one up.
    """

    def __init__(self, say: Callable[[str], None] = log.warning) -> None:
        self._say = say
        self._since: float | None = None
        self._told = False

    def still(self, what: str) -> None:
        """It is not over yet; `what` is waited for."""
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        if not self._told and now - self._since >= PATIENCE:
            self._told = True
            self._say(f"waiting for {what}")

    def over(self) -> None:
        """It is; what comes is another wait."""
        self._since, self._told = None, False


@contextmanager
def telling(what: str, say: Callable[[str], None] = log.warning) -> Iterator[None]:
    """Says what is done, in a sentence, if the block lasts."""
    timer = threading.Timer(PATIENCE, say, [what])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
