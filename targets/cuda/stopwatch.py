"""Timing of work on a device: by its own marks, without gaps between runs, warm or cold."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from targets.cuda.device import Device

AT_ONCE = 64
"""Samples that are queued before the device may pass the first of them."""
GROUP_SECONDS = 50e-6
"""A warm sample is the mean of runs that take about so long, as marks cost a microsecond themselves."""
MOST_RUNS = 16
LEAD_BYTES = 512 << 20
LEAD_SECONDS = 100e-6
"""Lower bound of the seconds that a device takes to fill `LEAD_BYTES`; meanwhile the host queues runs without gaps."""
QUEUE_SECONDS = 8e-6
"""The host's time for one launch or mark."""

_SCRATCH: WeakKeyDictionary[Device, Any] = WeakKeyDictionary()
"""Memory that a device fills, one for all that is timed there: finals hold many kernels at a time."""
_LAST: WeakKeyDictionary[Device, float] = WeakKeyDictionary()
"""Last time that a device was certainly timed, in seconds of the host."""
IDLE_SECONDS, WAKE_SECONDS = 1.0, 0.05
"""Seconds of idleness after which a GPU may have lowered its clock, and seconds of work that raise it again.

A search builds for seconds between two batches. Without a wake-up the first candidates of a batch would seem slow, and
be rejected. The device is woken before its first timing in a process, too.
"""


class Stopwatch:
    """A timer of one piece of work.

    Args:
        device: device that the work is queued on.
        start: queues the work once.
        launches: number of kernels of the work.
        cold: whether runs find the second-level cache filled with something else.
    """

    def __init__(self, device: Device, start: Callable[[], None], launches: int, cold: bool) -> None:
        self.device, self.start, self.launches, self.cold = device, start, launches, cold
        self._runs = 0  # of a warm sample; not known yet

    def time(self, iterations: int) -> NDArray[np.float64]:
        """Returns the seconds of each of so many runs; of short warm runs, each value is the mean of a few.

        The first runs are repeated in this way, too. A mark may take longer than the work between two marks, and a
        candidate's first sample alone counts.
        """
        seconds = self._samples(iterations)
        if self.cold:
            return seconds
        first, self._runs = not self._runs, _runs_per_sample(seconds)
        if first and self._runs > 1:
            seconds = self._samples(iterations)
            self._runs = _runs_per_sample(seconds)
        return seconds

    def _samples(self, iterations: int) -> NDArray[np.float64]:
        starts = range(0, iterations, AT_ONCE)
        return np.concatenate([self._time_samples(min(AT_ONCE, iterations - start)) for start in starts])

    def _time_samples(self, samples: int) -> NDArray[np.float64]:
        device, runs = self.device, 1 if self.cold else max(1, self._runs)
        marks: list[tuple[Any, Any]] = []
        self._wake()
        if not self.cold:
            self._lead(samples * (runs * self.launches + 1) * QUEUE_SECONDS)
            self.start()  # what the lead has driven out of the caches comes back
        for _ in range(samples):
            if self.cold:
                device.fill(self._get_scratch(), 0)
            first = device.record()
            for _ in range(runs):
                self.start()
            marks.append((first, device.record()))
        self._wait()
        return np.array([device.seconds(a, b) / runs for a, b in marks], np.float64)

    def laps(self, parts: Sequence[Callable[[], None]]) -> NDArray[np.float64]:
        """Returns the seconds of each part of the work, one part after another, beginning with cold caches."""
        self._wake()
        self._lead((self.launches + len(parts) + 1) * QUEUE_SECONDS)
        marks = [self.device.record()]
        for part in parts:
            part()
            marks.append(self.device.record())
        self._wait()
        return np.array([self.device.seconds(a, b) for a, b in pairwise(marks)], np.float64)

    def _wait(self) -> None:
        self.device.sync()
        _LAST[self.device] = time.monotonic()

    def _wake(self) -> None:
        """Brings up the clock of a device that has had nothing to do."""
        if time.monotonic() - _LAST.get(self.device, -math.inf) > IDLE_SECONDS:
            self._lead(WAKE_SECONDS)

    def _get_scratch(self) -> Any:
        """Returns memory that is larger than the second-level cache."""
        if self.device not in _SCRATCH:
            _SCRATCH[self.device] = self.device.allocate(max(LEAD_BYTES, 2 * self.device.l2_bytes))
        return _SCRATCH[self.device]

    def _lead(self, seconds: float) -> None:
        """Keeps the device busy while the host queues the work to time."""
        for _ in range(int(seconds / LEAD_SECONDS) + 1):
            self.device.fill(self._get_scratch(), 0)


def _runs_per_sample(seconds: NDArray[np.float64]) -> int:
    """Returns the number of runs whose mean is a sample, given the seconds of runs."""
    return max(1, min(MOST_RUNS, round(GROUP_SECONDS / max(float(np.median(seconds)), 1e-9))))
