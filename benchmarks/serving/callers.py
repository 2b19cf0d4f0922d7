"""A network served to threads of Python: requests a second, and how long each took. Nothing here knows a runtime."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Outputs = Sequence[NDArray[np.float32]]
Call = Callable[[], Outputs]
"""One request: inputs in, outputs out that nobody writes to any more."""


class WrongAnswer(RuntimeError):
    """A caller that got another answer than the one there is."""


@dataclass(frozen=True)
class Window:
    """What callers saw for a while.

    Attributes:
        seconds: from when all began until the last one was answered.
        latencies: seconds of each request.
    """

    seconds: float
    latencies: tuple[float, ...]

    @property
    def rate(self) -> float:
        """Requests a second."""
        return len(self.latencies) / self.seconds


def served(calls: Sequence[Call], expected: Outputs, seconds: float) -> Window:
    """Has every call made again and again by a thread of its own, side by side.

    Args:
        calls: one for each caller.
        expected: what each request must be answered with.
        seconds: after which nobody begins another request; each caller makes one at least.

    Raises:
        WrongAnswer: the last answer of a caller is another.
        Exception: whatever a call raises.
    """
    taken: list[list[float]] = [[] for _ in calls]
    last: list[Outputs] = [()] * len(calls)
    failures: list[BaseException] = []
    began: list[float] = []
    ready = threading.Barrier(len(calls), action=lambda: began.append(time.perf_counter()))

    def ask(caller: int) -> None:
        call, latencies = calls[caller], taken[caller]
        try:
            ready.wait()
            now = began[0]
            while not latencies or now < began[0] + seconds:
                last[caller] = call()
                before, now = now, time.perf_counter()
                latencies.append(now - before)
        except BaseException as error:  # raised again by the thread that waits
            failures.append(error)

    threads = [threading.Thread(target=ask, args=(caller,), daemon=True) for caller in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ended = time.perf_counter()
    if failures:
        raise failures[0]
    for caller, outputs in enumerate(last):
        _check(caller, outputs, expected)
    return Window(ended - began[0], tuple(value for latencies in taken for value in latencies))


def _check(caller: int, outputs: Outputs, expected: Outputs) -> None:
    for found, wanted in zip(outputs, expected, strict=True):
        worst = float(np.max(np.abs(found - wanted), initial=0.0))
        if not worst <= 1e-4 * float(np.max(np.abs(wanted), initial=1e-30)):
            raise WrongAnswer(f"all callers must get the same answer, but caller {caller} is {worst:.3g} away from it")
