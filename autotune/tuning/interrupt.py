"""Ctrl-C as a request to stop after what is under way; a second one stops at once."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self


class Interrupt:
    """While entered, the first Ctrl-C only sets `requested`, so that no finished trial is lost.

    Outside the main thread, where signals cannot be handled, it does nothing.

    Attributes:
        requested: whether Ctrl-C was pressed.
    """

    def __init__(self) -> None:
        self.requested = False
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

    def pressed(self) -> bool:
        """Whether Ctrl-C was pressed, for those who ask now and then."""
        return self.requested

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
