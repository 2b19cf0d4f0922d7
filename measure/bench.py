"""Timing of several subjects by one policy, sequential or interleaved, with one type of result.

A machine that others share changes its speed by tens of percent within fractions of a second. Interleaved subjects
meet the same fast and slow moments, so that their times can be compared; sequential timing takes less time.
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
    """A subject that times itself: a kernel, a network in a process of its own, a layer of another runtime.

    Attributes:
        deterministic: whether all executions take the same time, as in a simulator.
    """

    deterministic = False

    def prepare(self) -> float:
        """Prepares the subject for timing and compares its output.

        Returns:
            Wall seconds of the last execution; infinity if nothing was executed.

        Raises:
            TrialFailure: it cannot be timed.
        """
        return math.inf

    @abstractmethod
    def time(self, iterations: int) -> Any:
        """Measures the seconds of each of `iterations` executions, `(iterations,)`."""

    def median(self, iterations: int, warm: int = 0) -> float:
        """Returns the median seconds of `iterations` executions, after `warm` that do not count."""
        return float(np.median(self.time(warm + iterations)[warm:]))

    def check(self, last: bool) -> None:  # noqa: B027 (networks are compared elsewhere)
        """Compares the output that the timed executions have left.

        Args:
            last: whether to execute once more and compare that output, too.

        Raises:
            TrialFailure: the output is wrong.
        """


Result = Timing | TrialFailure
"""Result of timing one subject."""


@dataclass(frozen=True)
class Sequential:
    """A policy that times each subject to its end before the next.

    Attributes:
        policy: rule for when to stop repeating.
        best_seconds: latency to beat; None if unknown.
    """

    policy: TimingPolicy
    best_seconds: float | None = None

    def time(self, subjects: Sequence[Timeable], tick: Callable[[], None]) -> list[Result]:
        """Times all subjects, see `Bench`."""
        return [self._time_subject(subject, tick) for subject in subjects]

    def _time_subject(self, subject: Timeable, tick: Callable[[], None]) -> Result:
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
    """A policy that times subjects in short turns, round after round.

    Attributes:
        turns: turns of each subject.
        seconds: seconds that the executions of a turn should take.
        least: minimum number of executions in a turn.
        warm: whether a turn begins with as many executions that do not count. An idle core takes a while to come back
            to its full clock.
        pause: seconds before a turn, in which idle threads of the last one stop spinning.
        seed: seed of an order drawn anew in each round; None: the order of the subjects.
    """

    turns: int
    seconds: float
    least: int = 1
    warm: bool = False
    pause: float = 0.0
    seed: int | None = None

    def time(self, subjects: Sequence[Timeable], tick: Callable[[], None]) -> list[Result]:
        """Times all subjects, see `Bench`; the latencies are medians of turns."""
        failures = {index: _failure(subject.prepare, tick) for index, subject in enumerate(subjects)}
        ready = [index for index, failure in failures.items() if failure is None]
        counts = {index: self._executions(subjects[index]) for index in ready}
        medians: dict[int, list[float]] = {index: [] for index in ready}
        rng = np.random.default_rng(self.seed)
        for _ in range(self.turns):
            tick()
            for index in ready if self.seed is None else rng.permutation(ready).tolist():
                if self.pause:
                    time.sleep(self.pause)
                count = counts[index]
                medians[index].append(subjects[index].median(count, count if self.warm else 0))
        for index in ready:
            failures[index] = _failure(partial(subjects[index].check, True), tick)
        return [failures[index] or summary(medians[index]) for index in range(len(subjects))]

    def _executions(self, subject: Timeable) -> int:
        """Chooses how many executions fill a turn of `seconds`."""
        once = float(np.min(subject.time(1)))
        if once < self.seconds:
            # the first execution includes warming up: a short one is measured again
            once = float(np.min(subject.time(3)))
        return max(self.least, int(self.seconds / max(once, 1e-9)))


class Bench:
    """A bench that times subjects by a policy.

    Args:
        policy: sequential or interleaved timing.
        tick: called before each piece of work that a time-out may apply to; an exception ends the timing.
    """

    def __init__(self, policy: Sequential | Interleaved, tick: Callable[[], None] = lambda: None) -> None:
        self._policy, self._tick = policy, tick

    def time(self, subjects: Sequence[Timeable]) -> list[Result]:
        """Prepares, times and checks each subject; returns a timing or a failure for each, in order."""
        return self._policy.time(subjects, self._tick)


def _failure(work: Callable[[], object], tick: Callable[[], None]) -> TrialFailure | None:
    tick()
    try:
        work()
    except TrialFailure as failure:
        return failure
    return None
