"""Ctrl-C as a request to stop after the trials in progress; a second one stops at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any, Self

_STDERR = 2
_STOP_NOTICE = b"\nstopping after the trials under way; Ctrl-C again stops at once\n"


class Interrupt:
    """Context in which the first Ctrl-C only sets `requested`, so that no finished trial is lost.

    Outside the main thread signals cannot be handled, and only `stop` counts.

    Args:
        stop: function that tells whether the caller wants an end; it is called often.
    """

    def __init__(self, stop: Callable[[], bool] = lambda: False) -> None:
        self._is_pressed, self._stop = False, stop
        self._before: Any = None
        self._active = False

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._note)
            self._active = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._active:
            signal.signal(signal.SIGINT, self._before)

    def press(self) -> None:
        """Does what the first Ctrl-C does."""
        self._is_pressed = True

    @property
    def requested(self) -> bool:
        """Tells whether Ctrl-C was pressed, or the caller wants an end."""
        return self._is_pressed or self._stop()

    def poll(self) -> bool:
        """Tells whether an end is requested, as a function for callers that poll."""
        return self.requested

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._is_pressed:
            raise KeyboardInterrupt
        self.press()
        if os.isatty(_STDERR):  # `os.write`, as the handler may interrupt a print
            with suppress(OSError):  # the terminal may close at any time; the trials go on
                os.write(_STDERR, _STOP_NOTICE)
