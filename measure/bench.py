"""One way to time things: each to its end, or in turns; and one result, with its spread.

A machine that others share changes its speed by tens of percent within fractions of a second. What is timed in turns
meets the same fast and slow moments, so that it can be compared; what is timed alone takes less time.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from measure.errors import TrialFailure
from measure.timing import Timing, TimingPolicy, measure, summary


class Timeable(ABC):
    """Something that times itself: a kernel, a network in a process of its own, a layer of another runtime.

    Attributes:
        deterministic: whether one execution says all, as that of a simulator does.
    """

    deterministic = False

    def prepare(self) -> float:
        """Gets ready to be timed and compares the output.

        Returns:
            Wall seconds of the last execution; infinite where there was none.

        Raises:
            TrialFailure: it cannot be timed.
        """
        return math.inf

    @abstractmethod
    def time(self, iterations: int) -> Any:
        """Seconds of each of `iterations` executions, `(iterations,)`."""

    def median(self, iterations: int, warm: int = 0) -> float:
        """Median seconds of `iterations` executions, after `warm` that do not count."""
        return float(np.median(self.time(warm + iterations)[warm:]))

    def check(self, last: bool) -> None:  # noqa: B027 (networks are compared elsewhere)
        """Compares what the timed executions have left.

        Args:
            last: whether to execute once more and compare that, too.

        Raises:
            TrialFailure: it is wrong.
        """


Result = Timing | TrialFailure
"""What came of timing one thing."""


@dataclass(frozen=True)
class Sequential:
    """Each thing to its end, then the next.

    Attributes:
        policy: when to stop repeating.
        best_seconds: latency to beat; None: none is known.
    """

    policy: TimingPolicy
    best_seconds: float | None = None

    def time(self, subjects: Sequence[Timeable], tick: Callable[[], None]) -> list[Result]:
        """Times all, see `Bench`."""
        return [self._timed(subject, tick) for subject in subjects]

    def _timed(self, subject: Timeable, tick: Callable[[], None]) -> Result:
        tick()
        try:
            checked = subject.prepare()
            policy, best = self.policy, self.best_seconds
            if subject.deterministic:
                policy, best = replace(policy, min_samples=1, max_samples=1), None
            timing = measure(lambda count: np.asarray(subject.time(count), np.float64), policy, best, checked)
            subject.check(not timing.cut)
        except TrialFailure as failure:
            return failure
        return timing


@dataclass(frozen=True)
class Interleaved:
    """Short turns of one after the other, round after round.

    Attributes:
        turns: of each thing.
        seconds: of executions in a turn.
        least: executions in a turn at least.
        warm: whether a turn begins with as many executions that do not count: a core that was idle takes a while to
            come back to its full clock.
        pause: seconds before a turn, in which idle threads of the last one stop spinning.
        seed: of an order drawn anew in each round; None: the order is that of the things.
    """

    turns: int
    seconds: float
    least: int = 1
    warm: bool = False
    pause: float = 0.0
    seed: int | None = None

    def time(self, subjects: Sequence[Timeable], tick: Callable[[], None]) -> list[Result]:
        """Times all, see `Bench`; the latencies are medians of turns."""
        failures = {place: _failure(subject.prepare, tick) for place, subject in enumerate(subjects)}
        ready = [place for place, failure in failures.items() if failure is None]
        counts = {place: self._executions(subjects[place]) for place in ready}
        medians: dict[int, list[float]] = {place: [] for place in ready}
        rng = np.random.default_rng(self.seed)
        for _ in range(self.turns):
            tick()
            for place in ready if self.seed is None else rng.permutation(ready).tolist():
                if self.pause:
                    time.sleep(self.pause)
                count = counts[place]
                medians[place].append(subjects[place].median(count, count if self.warm else 0))
        for place in ready:
            failures[place] = _failure(partial(subjects[place].check, True), tick)
        return [failures[place] or summary(medians[place]) for place in range(len(subjects))]

    def _executions(self, subject: Timeable) -> int:
        """Executions in a turn."""
        once = float(np.min(subject.time(1)))
        if once < self.seconds:
            once = float(np.min(subject.time(3)))
        return max(self.least, int(self.seconds / max(once, 1e-9)))


class Bench:
    """Times things by a policy.

    Args:
        policy: how.
        tick: called before each piece of work, which a time-out may hold for; an exception ends the timing.
    """

    def __init__(self, policy: Sequential | Interleaved, tick: Callable[[], None] = lambda: None) -> None:
        self._policy, self._tick = policy, tick

    def time(self, subjects: Sequence[Timeable]) -> list[Result]:
        """Prepares, times and checks each subject; its timing, or why there is none, in their order."""
        return self._policy.time(subjects, self._tick)


def _failure(work: Callable[[], object], tick: Callable[[], None]) -> TrialFailure | None:
    tick()
    try:
        work()
    except TrialFailure as failure:
        return failure
    return None
