"""Ctrl-C as a request to stop after what is under way; a second one stops at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any, Self

_STDERR = 2
_HEARD = b"\nstopping after the trials under way; Ctrl-C again stops at once\n"


class Interrupt:
    """While entered, the first Ctrl-C only sets `requested`, so that no finished trial is lost.

    Outside the main thread signals cannot be handled, and `stop` alone counts.

    Args:
        stop: says whether somebody else wants an end, and is asked often.
    """

    def __init__(self, stop: Callable[[], bool] = lambda: False) -> None:
        self._pressed, self._stop = False, stop
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
        self._pressed = True

    @property
    def requested(self) -> bool:
        """Whether Ctrl-C was pressed, or somebody else wants an end."""
        return self._pressed or self._stop()

    def pressed(self) -> bool:
        """The same, for those who ask now and then."""
        return self.requested

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._pressed:
            raise KeyboardInterrupt
        self.press()
        if os.isatty(_STDERR):  # a handler may interrupt a print, so that it writes by itself
            with suppress(OSError):  # the terminal may go at any time; what is under way goes on
                os.write(_STDERR, _HEARD)
