"""Load of a network by threads of Python: requests a second, and the latency of each, for any runtime."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Outputs = Sequence[NDArray[np.float32]]
Call = Callable[[], Outputs]
"""One request: inputs in, outputs out, which are not written to any more."""


class WrongAnswer(RuntimeError):
    """A caller that got another answer than the one there is."""


@dataclass(frozen=True)
class Window:
    """Measurement of all callers over some time.

    Attributes:
        seconds: time from the common start until the last answer.
        latencies: seconds of each request.
    """

    seconds: float
    latencies: tuple[float, ...]

    @property
    def rate(self) -> float:
        """Requests a second."""
        return len(self.latencies) / self.seconds


def run_callers(calls: Sequence[Call], expected: Outputs, seconds: float) -> Window:
    """Runs every call repeatedly in a thread of its own, all at the same time.

    Args:
        calls: one for each caller.
        expected: right answer of each request.
        seconds: time after which no caller begins another request; each caller makes one at least.

    Raises:
        WrongAnswer: the last answer of a caller is another.
        Exception: any error of a call.
    """
    latencies_of: list[list[float]] = [[] for _ in calls]
    last: list[Outputs] = [()] * len(calls)
    failures: list[BaseException] = []
    began: list[float] = []
    ready = threading.Barrier(len(calls), action=lambda: began.append(time.perf_counter()))

    def ask(caller: int) -> None:
        call, latencies = calls[caller], latencies_of[caller]
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
    return Window(ended - began[0], tuple(value for latencies in latencies_of for value in latencies))


def _check(caller: int, outputs: Outputs, expected: Outputs) -> None:
    for found, wanted in zip(outputs, expected, strict=True):
        worst = float(np.max(np.abs(found - wanted), initial=0.0))
        if not worst <= 1e-4 * float(np.max(np.abs(wanted), initial=1e-30)):
            raise WrongAnswer(f"all callers must get the same answer, but caller {caller} is {worst:.3g} away from it")
