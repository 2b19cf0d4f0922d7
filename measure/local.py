"""Pool on this host: trials are built by several processes and timed by one, and never both at a time.

Work goes on only inside `results`, which runs one event loop without threads: while a kernel is timed, this
process sleeps. A batch is built whole, then timed whole. Every process is isolated and disposable; a trial
that fails in a process which an earlier kernel may have damaged is tried once more in a fresh one before its
failure counts.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Sequence
from multiprocessing.connection import wait

from measure.best import BestLatencies
from measure.errors import ErrorClass, OutcomeError, PoolError
from measure.host import allowed_cores, cores_for
from measure.hostlock import HostLock
from measure.pool import MeasurePool, Trial, TrialResult
from measure.settings import LocalSettings
from measure.supervisor import Ending, Job, Supervisor, result_of


class LocalPool(MeasurePool):
    """Measures trials in child processes of this host.

    Args:
        settings: how; the defaults suit a machine that is otherwise idle.
    """

    def __init__(self, settings: LocalSettings | None = None) -> None:
        self.settings = settings or LocalSettings()
        builders = self.settings.builders or len(allowed_cores())
        self._builders = [Supervisor("build", self.settings) for _ in range(builders)]
        self._runner = Supervisor("run", self.settings)
        self._lock = HostLock(self.settings.host_lock)
        self._phase = "build"
        self._waiting: deque[Job] = deque()
        self._built: deque[Job] = deque()
        self._done: list[TrialResult] = []
        self._best = BestLatencies()
        self._submitted = 0
        self._closed = False

    def warm_up(self, threads: int) -> None:
        """Starts the children, unless another run is timing something on this host."""
        if not self._busy and self._lock.acquire("build", 0.0):
            for supervisor in self._builders:
                supervisor.start()
            self._runner.start(cores_for(threads))

    def submit(self, trials: Sequence[Trial]) -> None:
        """Queues trials; they are worked on inside `results`."""
        if self._closed:
            raise PoolError("`submit` must be called on an open pool, but got closed=True")
        for trial in trials:
            self._waiting.append(Job(self._submitted, trial))
            self._submitted += 1

    @property
    def outstanding(self) -> int:
        """Trials submitted whose results were not returned yet."""
        busy = sum(supervisor.job is not None for supervisor in self._supervisors)
        return len(self._waiting) + len(self._built) + len(self._done) + busy

    def results(self, timeout: float | None = None) -> list[TrialResult]:
        """Works until at least one result is there, or `timeout` seconds have passed; see the base class."""
        end = math.inf if timeout is None else time.monotonic() + timeout
        while self.outstanding and not self._done:
            if self._dispatch(end - time.monotonic()):
                self._attend(end)
            if time.monotonic() >= end:
                break
        if not self._busy:
            self._lock.release()
        done, self._done = self._done, []
        return done

    def cancel(self) -> None:
        """Kills what is under way and forgets it; finished results can still be fetched."""
        for supervisor in self._busy:
            supervisor.retire()
        self._waiting.clear()
        self._built.clear()
        self._lock.release()

    def close(self) -> None:
        """Kills the child processes; may be called twice."""
        self.cancel()
        for supervisor in self._supervisors:
            supervisor.retire()
        self._done.clear()
        self._lock.close()
        self._closed = True

    @property
    def _supervisors(self) -> list[Supervisor]:
        return [*self._builders, self._runner]

    @property
    def _busy(self) -> list[Supervisor]:
        return [supervisor for supervisor in self._supervisors if supervisor.job is not None]

    def _dispatch(self, timeout: float) -> bool:
        """Gives work of one phase to idle supervisors; False where another run holds the host all the time."""
        if not self._busy:
            goes_on = self._phase == "time" and self._built
            fits = self._waiting and len(self._built) < self.settings.batch
            self._phase = "build" if fits and not goes_on else "time"
            if not self._lock.acquire(self._phase, max(0.0, timeout)):
                return False
        if self._phase == "build":
            self._dispatch_builds()
        elif self._built and self._runner.job is None:
            job = self._built.popleft()
            self._runner.run(job, self._best.limit(job.trial))
        return True

    def _dispatch_builds(self) -> None:
        if self._waiting and not self._runner.alive:  # comes up while nothing is timed
            self._runner.start(cores_for(self._waiting[0].trial.threads))
        for supervisor in self._builders:
            if supervisor.job is None and self._waiting and len(self._built) + len(self._busy) < self.settings.batch:
                supervisor.build(self._waiting.popleft())

    def _attend(self, end: float) -> None:
        """Waits for the next message or deadline and deals with it."""
        busy = self._busy
        until = min([end, *(supervisor.deadline for supervisor in busy)])
        pause = None if until == math.inf else max(0.0, until - time.monotonic())
        ready = wait([supervisor.connection for supervisor in busy], pause)
        for supervisor in busy:
            if supervisor.connection in ready:
                outcome = supervisor.receive()
            elif time.monotonic() >= supervisor.deadline:
                outcome = supervisor.expire()
            else:
                continue
            if outcome is not None:
                self._settle(supervisor, outcome)

    def _settle(self, supervisor: Supervisor, outcome: Ending) -> None:
        """Sends a job on to its next stage, or makes it a result."""
        job = outcome.job
        if outcome.retry():
            (self._built if supervisor is self._runner else self._waiting).appendleft(job)
            return
        if supervisor is not self._runner:
            if outcome.error is ErrorClass.ok:
                job.module, job.build_span = outcome.blob, tuple(outcome.header["span"])
                self._built.append(job)
            else:
                self._done.append(result_of(job, outcome.header, built=True))
            return
        try:
            result = result_of(job, outcome.header)
        except OutcomeError as wrong:  # a kernel that has spoiled its process, or a clock that is none
            message = f"a measurement must be possible, but: {wrong}"
            result = result_of(job, {"error": ErrorClass.unknown, "message": message})
        self._best.add(result)
        self._done.append(result)
