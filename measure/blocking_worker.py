"""A worker process that is used by plain calls, which block: it builds or runs one trial at a time."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import Any, Literal

from measure.errors import ErrorClass, PoolError
from measure.host import allowed_cores, cores_for
from measure.pool import Trial
from measure.settings import LocalSettings
from measure.supervisor import Ending, Job, Supervisor

_POLL = 0.1
"""Seconds after which a wait looks whether it was cancelled."""


_NO_TRIAL = Trial({}, "", (), workload_key="call", trace_key="call")


class Cancelled(Exception):
    """Whoever asked for this trial does not want it any more; its process was killed."""


@dataclass(frozen=True)
class Answer:
    """What came of a request.

    Attributes:
        header: plain data: `error` and `message` of a failure; else what `measure.worker` says of a run.
        blob: the module of a build.
    """

    header: Mapping[str, Any]
    blob: bytes = b""

    @property
    def error(self) -> ErrorClass:
        """`ErrorClass.ok` or the class of the failure."""
        return ErrorClass(self.header.get("error", ErrorClass.ok))


class BlockingWorker:
    """Builds or runs one trial at a time in a disposable child process, which it replaces when it has died.

    Calls block and belong to one thread at a time; `close` may come from another one. The child ends with the thread
    that was the first to need it, and so, however it dies, with this process: its kernel would disturb other timings.

    Args:
        role: `build` or `run`.
        settings: the executor, limits of time and memory.
    """

    def __init__(self, role: Literal["build", "run"], settings: LocalSettings | None = None) -> None:
        self.role = role
        self.settings = settings or LocalSettings()
        self._supervisor = Supervisor(role, self.settings, os.getpid())
        self._closed = False

    def start(self) -> None:
        """Has a child at hand, so that the first trial need not wait for it."""
        self._supervisor.start()

    def build(self, trial: Trial, cancelled: Callable[[], bool] = lambda: False) -> Answer:
        """Compiles a trial; the answer's blob is the module.

        Args:
            trial: what to build.
            cancelled: asked now and then.

        Raises:
            Cancelled: `cancelled` said so.
            PoolError: the child cannot be started, or the worker is closed.
        """
        job = Job(0, trial)
        outcome = self._work(lambda: self._supervisor.build(job), cancelled)
        return Answer(outcome.header, outcome.blob)

    def run(
        self,
        trial: Trial,
        module: bytes,
        best_seconds: float | None = None,
        cancelled: Callable[[], bool] = lambda: False,
        check: bool = True,
    ) -> Answer:
        """Checks and times a built trial; one that fails in a process that may have been damaged is tried once more.

        Args:
            trial: the trial.
            module: as `build` gave it.
            best_seconds: latency to beat, where it is known to be lower than the trial's own.
            cancelled: asked now and then.
            check: whether the output is compared with the reference here. Otherwise it is the answer's blob, and
                the header has its `output` (dtype and shape) and `first`, whether the child was a fresh one.

        Raises:
            Cancelled: `cancelled` said so.
            PoolError: the child cannot be started, or the worker is closed.
        """
        job = Job(0, trial, module)
        outcome = self._work(lambda: self._supervisor.run(job, best_seconds, check), cancelled)
        return Answer({**outcome.header, "first": outcome.first}, outcome.blob)

    def call(
        self,
        request: Mapping[str, Any],
        blob: bytes,
        timeout: float,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> Answer:
        """Runs a kernel for its own sake, see `measure.kernel_call`.

        Args:
            request: `{"call": ...}`.
            blob: the module and its arrays.
            timeout: seconds; inputs that are made on the device have the settings' besides.
            cancelled: asked now and then.

        Raises:
            Cancelled: `cancelled` said so.
            PoolError: the child cannot be started, or the worker is closed.
        """
        job, limits = Job(0, _NO_TRIAL), (self.settings.prepare_timeout, timeout)
        self._supervisor.start(cores_for(len(allowed_cores())))
        late = ErrorClass.run_timeout
        outcome = self._work(lambda: self._supervisor.assign(job, request, blob, limits, late), cancelled)
        return Answer(outcome.header, outcome.blob)

    def retire(self) -> None:
        """Ends the child; the next call gets a fresh one."""
        self._supervisor.retire()

    def close(self) -> None:
        """Kills the child; may be called twice."""
        self._closed = True
        self._supervisor.retire()

    def _work(self, assign: Callable[[], None], cancelled: Callable[[], bool]) -> Ending:
        """The outcome of a job, which `assign` gives to the child, and gives once more where that is worth it."""
        if self._closed:
            raise PoolError("a worker must be open to work, but got closed=True")
        assign()
        supervisor = self._supervisor
        while True:
            if cancelled():
                supervisor.retire()
                raise Cancelled
            pause = min(_POLL, max(0.0, supervisor.deadline - time.monotonic()))
            outcome = None
            if wait([supervisor.connection], pause):
                outcome = supervisor.receive()
            elif time.monotonic() >= supervisor.deadline:
                outcome = supervisor.expire()
            if outcome is not None:
                return self._work(assign, cancelled) if outcome.retry() else outcome
