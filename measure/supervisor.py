"""Supervision of one worker process, which has at most one job: its start, deadlines, death and replacement."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from measure.child import Child
from measure.errors import ErrorClass, PoolError
from measure.host import allowed_cores, cores_for
from measure.outcome import Outcome, read
from measure.pool import Trial, TrialResult
from measure.settings import LocalSettings


@dataclass
class Job:
    """One trial on its way through the pool.

    Attributes:
        index: place in the order of submission.
        trial: the trial.
        module: machine code, once built.
        build_span: start and end of the build, monotonic seconds.
        suspect: failed once in a process that may have been damaged by an earlier kernel.
        killed: lost a process once that was killed from outside.
    """

    index: int
    trial: Trial
    module: bytes = b""
    build_span: tuple[float, float] | None = None
    suspect: bool = False
    killed: bool = False


@dataclass(frozen=True)
class Ending:
    """End of a job: the worker's last message, or how the process ended instead."""

    job: Job
    header: Mapping[str, Any]
    blob: bytes = b""
    first: bool = True
    """Whether the process had done no job before this one."""
    outside: bool = False
    """Whether somebody else killed the process."""

    @property
    def error(self) -> ErrorClass:
        """`ErrorClass.ok` or the class of the failure."""
        return ErrorClass(self.header.get("error", ErrorClass.ok))

    def retry(self) -> bool:
        """Whether the job is to be done once more, of which the job takes note.

        It is where the process was killed from outside, and where a kernel failed in a process that may have been
        damaged by an earlier one; each once.
        """
        job, failed = self.job, self.error in (ErrorClass.wrong_output, ErrorClass.crash)
        if self.outside and not job.killed:
            job.killed = True
            return True
        if job.module and failed and not self.first and not job.suspect:
            job.suspect = True
            return True
        return False


class Supervisor:
    """Keeps one child process: starts it when there is work, holds it to deadlines, replaces it when it has died.

    Args:
        role: of the child, see `measure.worker`: `build` or `run`.
        settings: the executor, how it times, limits of time and memory.
        parent: process with which the child ends, however that ends; None: with the socket.
    """

    def __init__(self, role: Literal["build", "run"], settings: LocalSettings, parent: int | None = None) -> None:
        self._role, self._settings = role, settings
        self._options = {
            "role": role,
            "executor": settings.executor,
            "memory_bytes": settings.memory_bytes,
            "task_bytes": settings.task_bytes,
            **({} if parent is None else {"parent": parent}),
        }
        self._child: Child | None = None
        self._ready = False
        self._jobs_done = 0
        self._timeouts = (math.inf, math.inf)  # until prepared, from then on; seconds
        self._limit = math.inf  # that of these which holds now
        self._timeout_error = ErrorClass.run_timeout
        self.cores = allowed_cores()
        self.job: Job | None = None
        self.deadline = math.inf  # monotonic seconds

    @property
    def connection(self) -> Any:
        """The child's socket, to wait on."""
        assert self._child is not None
        return self._child.connection

    @property
    def alive(self) -> bool:
        """Whether there is a child."""
        return self._child is not None

    def start(self, cores: tuple[int, ...] | None = None) -> None:
        """Has a child at hand on `cores`; one on other cores is replaced."""
        if cores is not None and cores != self.cores:
            self.retire()
            self.cores = cores
        if self._child is None:
            self._child = Child({**self._options, "cores": self.cores})
            self._ready, self._jobs_done = False, 0

    def build(self, job: Job) -> None:
        """Has the child compile a job's trial."""
        limit = job.trial.build_timeout
        self.assign(job, {"trial": job.trial.to_json()}, b"", (limit, limit), ErrorClass.build_timeout)

    def run(self, job: Job, best_seconds: float | None = None, check: bool = True) -> None:
        """Has the child check and time a job's trial, which is built.

        Args:
            job: the job.
            best_seconds: latency to beat, where it is known to be lower than the trial's own.
            check: whether the output is compared with the reference there.
        """
        trial = job.trial
        if best_seconds is not None:
            trial = replace(trial, best_seconds=min(best_seconds, trial.best_seconds or best_seconds))
        request = {"trial": trial.to_json(), "timing": self._settings.timing.to_json(), "check": check}
        self.start(cores_for(trial.threads))
        limits = (self._settings.prepare_timeout, trial.run_timeout)
        self.assign(job, request, job.module, limits, ErrorClass.run_timeout)

    def assign(
        self,
        job: Job,
        request: Mapping[str, Any],
        blob: bytes,
        timeouts: tuple[float, float],
        timeout_error: ErrorClass,
    ) -> None:
        """Gives the child a job.

        Args:
            job: the job.
            request: header of the request.
            blob: bytes that go with it.
            timeouts: seconds until the task is prepared, and from then until the outcome.
            timeout_error: class of the failure when they pass.
        """
        self.start()
        assert self._child is not None
        self.job, self._timeouts, self._timeout_error = job, timeouts, timeout_error
        self._child.send({**request, "prepare_timeout": timeouts[0], "timeout": timeouts[1]}, blob)
        self._allow(timeouts[0] if self._ready else self._settings.start_timeout)

    def receive(self) -> Ending | None:
        """Takes a message of the child; the outcome, if that is what it is."""
        assert self._child is not None
        message = self._child.receive()
        if message is None:
            return self._died()
        header, blob = message
        if header["stage"] == "ready":
            self._ready = True
            self._allow(self._timeouts[0] if self.job else math.inf)
            return None
        if header["stage"] == "prepared":
            self._allow(self._timeouts[1])
            return None
        outcome = self._end(header, blob)
        self._jobs_done += 1
        if outcome.error in (ErrorClass.out_of_memory, ErrorClass.wrong_output):
            self.retire()  # what computes wrongly may have written where it should not
        return outcome

    def expire(self) -> Ending:
        """Kills the child, whose deadline has passed."""
        if not self._ready:
            self._start_failed(f"was not ready after {self._settings.start_timeout:g} s")
        outcome = self._end({"error": self._timeout_error, "message": self._overtime()})
        self.retire()
        return outcome

    def retire(self) -> None:
        """Ends the child; the next job gets a fresh one."""
        if self._child is not None:
            self._child.close()
        self._child, self.job, self.deadline = None, None, math.inf

    def _allow(self, seconds: float) -> None:
        self._limit, self.deadline = seconds, time.monotonic() + seconds

    def _end(self, header: Mapping[str, Any], blob: bytes = b"") -> Ending:
        assert self.job is not None
        outcome = Ending(self.job, header, blob, self._jobs_done == 0)
        self.job, self.deadline = None, math.inf
        return outcome

    def _died(self) -> Ending | None:
        assert self._child is not None
        code, death = self._child.death()
        error, how = death.error, death.how
        if not self._ready and not (death.outside and (self.job is None or not self.job.killed)):
            self._start_failed(how)
        if self.job is None:
            self.retire()
            return None
        if -code == signal.SIGALRM:  # it noticed the time-out before us
            error, how = self._timeout_error, self._overtime()
        else:
            how = f"the {self._role} process {how}"
        outcome = replace(self._end({"error": error, "message": how}), outside=death.outside)
        self.retire()
        return outcome

    def _overtime(self) -> str:
        return f"the {self._role} process was killed after its time-out of {self._limit:g} s"

    def _start_failed(self, how: str) -> None:
        self.retire()
        raise PoolError(f"a {self._role} process must start, but {how}")


def result_of(
    job: Job, header: Mapping[str, Any], built: bool = False, host: Mapping[str, Any] | None = None
) -> TrialResult:
    """Result of a job.

    Args:
        job: the job.
        header: of its last message.
        built: whether it ended in the build.
        host: description of the device that ran it, where that is not this machine.

    Raises:
        OutcomeError: the message says what no measurement gives.
    """
    said, span = read(header)
    build_span, run_span = (span, None) if built else (job.build_span, span)
    outcome = Outcome(**said, build_seconds=_length(build_span), run_seconds=_length(run_span), host=host or {})
    return TrialResult(job.trial, job.index, outcome, build_span, run_span)


def _length(span: tuple[float, float] | None) -> float:
    return math.nan if span is None else span[1] - span[0]
