"""Interleaved timing of many kernels: short bursts of one after the other, round after round, in one process.

A host that others share changes its speed by tens of percent within fractions of a second. Timing one kernel for 15 ms,
and then the next one, compares the moments as much as the kernels. Here the bursts of every kernel are spread over the
seconds that the group takes, so that each meets the host's fast moments. Its fastest burst tells its speed; see
docs/measurement.md for the accuracy.

Outputs are not compared with the reference unless asked for: a pool has checked these kernels before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from measure.building import ParallelBuild
from measure.child import ChildError
from measure.closing import Closing
from measure.errors import ErrorClass, OutcomeError, PoolError, TrialFailure
from measure.hostlock import POLL_SECONDS, HostLock
from measure.outcome import Outcome
from measure.pool import Trial, TrialResult
from measure.settings import LocalSettings
from measure.supervisor import Answer
from measure.timing import replace_zeros
from measure.timing_process import TimingProcess

_SHARE = 1 / 40
"""Share of one kernel's time-out that each kernel adds to the time-out of a round."""


@dataclass(frozen=True)
class InterleavedTiming:
    """Settings for timing a group of kernels.

    Attributes:
        rounds: bursts of each kernel.
        burst_seconds: seconds of one burst; a kernel that takes longer runs once.
        group: most kernels whose bursts are interleaved: the more, the longer the time over which each is spread.
        rotation_bytes: most memory for rotated copies of a kernel's constants, bytes. The other kernels of a group,
            which run between two bursts, also make constants cold.
        timeout_seconds: limit for binding and running one kernel; a group of n kernels gets 1 + n / 40 times as long.
        check: whether outputs are compared with the reference, as in a pool.
    """

    rounds: int = 60
    burst_seconds: float = 0.001
    group: int = 320
    rotation_bytes: int = 16 << 20
    timeout_seconds: float = 20.0
    check: bool = False

    def __post_init__(self) -> None:
        for name in ("rounds", "group", "rotation_bytes"):
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}` must be at least 1, but got {name}={getattr(self, name)}")
        for name in ("burst_seconds", "timeout_seconds"):
            if not getattr(self, name) > 0:
                raise ValueError(f"`{name}` must be positive, but got {name}={getattr(self, name)}")


class InterleavedTimer(Closing):
    """A timer of groups of known kernels on this machine, in a process of its own.

    Args:
        threads: number of threads that kernels run on.
        timing: settings for timing a group.
        settings: settings of the local pool: executor, time-outs, the host's lock.
        seed: seed of the order in each round.
    """

    def __init__(
        self,
        threads: int,
        timing: InterleavedTiming | None = None,
        settings: LocalSettings | None = None,
        seed: int = 0,
    ) -> None:
        self.timing, self.settings = timing or InterleavedTiming(), settings or LocalSettings()
        self._rng = np.random.default_rng(seed)
        self._lock = HostLock(self.settings.host_lock)
        self._builders = ParallelBuild(self.settings)
        self._process = TimingProcess("interleaved", threads, self.settings)

    def time(self, trials: Sequence[Trial], stop: Callable[[], bool] = lambda: False) -> list[TrialResult]:
        """Times kernels, at most `timing.group` at a time, see `groups`; returns all results."""
        return [result for group in self.groups(trials, stop) for result in group]

    def groups(self, trials: Sequence[Trial], stop: Callable[[], bool] = lambda: False) -> Iterator[list[TrialResult]]:
        """Times kernels, at most `timing.group` at a time, and yields the results of each group as soon as it is done.

        Args:
            trials: trials to time; groups of one workload and one seed share inputs, others need new ones for each
                trial.
            stop: asked before each group, and while others use the machine.

        Yields:
            A result for each trial, in order, until `stop` returns True. `latencies` are medians of bursts. A group is
            timed again in halves if a kernel fails as it runs or ends the process, or if the memory is too small.
            Finally the culprit is alone with its failure.
        """
        for first in range(0, len(trials), self.timing.group):
            while not self._lock.acquire("time", POLL_SECONDS):  # other programs build or time
                if stop():
                    return
            if stop():
                return
            try:
                group = list(trials[first : first + self.timing.group])
                results = self._group(group, self._builders.build(group), first)
            finally:
                self._lock.release()
            yield results

    def close(self) -> None:
        """Ends the process; may be called twice."""
        self._process.close()
        self._builders.close()
        self._lock.close()

    def _group(self, trials: list[Trial], builds: list[Answer], first: int) -> list[TrialResult]:
        request = {
            "trials": [trial.to_json() for trial in trials],
            "built": [{**answer.header, "bytes": len(answer.blob)} for answer in builds],
            "rounds": self.timing.rounds,
            "burst_seconds": self.timing.burst_seconds,
            "rotation_bytes": self.timing.rotation_bytes,
            "check": self.timing.check,
            "seed": int(self._rng.integers(1 << 31)),
        }
        blob, limit = b"".join(answer.blob for answer in builds), self.timing.timeout_seconds
        try:
            answer = self._process.ask(request, blob, limit * (1.0 + _SHARE * len(trials)))
            failure = _failure(answer)
        except ChildError as error:
            failure = TrialFailure(error.death.error, f"the kernel's process {error.death.how}")
        if failure is None:
            return [
                TrialResult(trial, first + index, _outcome(of))
                for index, (trial, of) in enumerate(zip(trials, answer["results"], strict=True))
            ]
        self._process.close()
        if len(trials) == 1:
            return [TrialResult(trials[0], first, Outcome.from_error(failure.error, failure.message))]
        half = len(trials) // 2
        return self._group(trials[:half], builds[:half], first) + self._group(
            trials[half:], builds[half:], first + half
        )


def _failure(header: dict[str, Any]) -> TrialFailure | None:
    """Returns the reason why a group could not be timed; None if it was timed.

    Raises:
        PoolError: a fault of this project, which smaller groups would have, too.
    """
    if "error" not in header:
        return None
    error = ErrorClass(header["error"])
    if error is ErrorClass.unknown:
        raise PoolError(f"a group must be timed, but got {error}: {header['message']}")
    return TrialFailure(error, header["message"])


def _outcome(answer: dict[str, Any]) -> Outcome:
    """Converts the process's data on a kernel to an outcome."""
    if "error" in answer:
        return Outcome.from_error(ErrorClass(answer["error"]), answer["message"])
    latencies = tuple(replace_zeros(np.array(answer["latencies"], np.float64)).tolist())
    try:
        return Outcome.of_samples(latencies, rotation_bytes=answer["rotation_bytes"], metrics=answer["metrics"])
    except OutcomeError as wrong:
        return Outcome.from_error(ErrorClass.unknown, f"a measurement must be possible, but: {wrong}")
