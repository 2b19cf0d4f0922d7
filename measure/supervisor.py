"""Supervision of one worker process, by coroutines: its start, its requests and their time-outs, its death, retries."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from measure.child import Child
from measure.errors import ErrorClass, PoolError
from measure.host import allowed_cores, cores_for
from measure.messages import Messages
from measure.pool import Trial
from measure.settings import LocalSettings


@dataclass(frozen=True)
class Answer:
    """Outcome of a request.

    Attributes:
        header: plain data: `error` and `message` of a failure; otherwise the fields that `measure.worker` sends of a
            run.
        blob: the module of a build.
    """

    header: Mapping[str, Any]
    blob: bytes = b""

    @property
    def error(self) -> ErrorClass:
        """`ErrorClass.ok` or the class of the failure."""
        return ErrorClass(self.header.get("error", ErrorClass.ok))


@dataclass(frozen=True)
class _Request:
    """Request to a child.

    Attributes:
        header: plain data.
        blob: bytes of the request.
        timeouts: seconds until the task is prepared, and from then until the outcome.
        late: class of the failure on time-out.
        kernel: whether it runs a trial's kernel, which damage by an earlier kernel may cause to fail.
    """

    header: Mapping[str, Any]
    blob: bytes
    timeouts: tuple[float, float]
    late: ErrorClass
    kernel: bool = False


class Supervisor:
    """Supervisor of one child process, which does one thing at a time and is started on demand, again after its death.

    A request is repeated once if the process was killed from outside. It is repeated once if a kernel failed in a
    process that an earlier kernel may have damaged. Cancelling a request ends the process.

    Args:
        role: role of the child, see `measure.worker`: `build` or `run`.
        settings: the executor, how it times, limits of time and memory.
        parent: process id. The child ends with this process, however that ends, and with the thread that started the
            child. None: the child ends with its socket.

    Attributes:
        cores: cores that the child may use.
        working: whether the child has a request.
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
        self._timing = settings.timing.to_json()
        self._child: Child | None = None
        self._messages: Messages | None = None  # messages of the child
        self._ready = False
        self._answer_count = 0
        self.cores = allowed_cores()
        self.working = False

    @property
    def pid(self) -> int | None:
        """Process id of the child; None if no child runs."""
        return None if self._child is None else self._child.pid

    def start(self, cores: tuple[int, ...] | None = None) -> None:
        """Starts the child on `cores` unless it runs there; replaces one on other cores."""
        if cores is not None and cores != self.cores:
            self.retire()
            self.cores = cores
        if self._child is None:
            self._child = Child({**self._options, "cores": self.cores})
            self._messages = Messages(self._child)
            self._ready, self._answer_count = False, 0

    def retire(self) -> None:
        """Ends the child; the next request gets a fresh one."""
        if (child := self._let_go()) is not None:
            child.close()

    async def build(self, trial: Trial) -> Answer:
        """Compiles a trial; the answer's blob is the module.

        Raises:
            PoolError: the child cannot be started.
        """
        limits = (trial.build_timeout, trial.build_timeout)
        answer, _ = await self._work(_Request({"trial": trial.to_json()}, b"", limits, ErrorClass.build_timeout))
        return answer

    async def run(self, trial: Trial, module: bytes, best_seconds: float | None = None, check: bool = True) -> Answer:
        """Checks and times a built trial.

        Args:
            trial: the trial.
            module: machine code that `build` returned.
            best_seconds: latency to beat, where it is known to be lower than the trial's own.
            check: whether the child compares the output with the reference. Otherwise the output is the answer's blob,
                and the header has its `output` (dtype and shape).

        Returns:
            The answer; its header also has `first`, whether the child had run nothing before.

        Raises:
            PoolError: the child cannot be started.
        """
        plain = trial.to_json()
        if best_seconds is not None:
            plain["best_seconds"] = min(best_seconds, trial.best_seconds or best_seconds)
        header = {"trial": plain, "timing": self._timing, "check": check}
        limits = (self._settings.prepare_timeout, trial.run_timeout)
        self.start(cores_for(trial.threads))
        answer, first = await self._work(_Request(header, module, limits, ErrorClass.run_timeout, kernel=True))
        return Answer({**answer.header, "first": first}, answer.blob)

    async def call(self, request: Mapping[str, Any], blob: bytes, timeout: float) -> Answer:
        """Runs a kernel for its own sake, see `measure.kernel_call`.

        Args:
            request: `{"call": ...}`.
            blob: the module and its arrays.
            timeout: seconds; making inputs on the device has the settings' `prepare_timeout` in addition.

        Raises:
            PoolError: the child cannot be started.
        """
        self.start(cores_for(len(allowed_cores())))
        limits = (self._settings.prepare_timeout, timeout)
        answer, _ = await self._work(_Request(request, blob, limits, ErrorClass.run_timeout))
        return answer

    async def _work(self, request: _Request) -> tuple[Answer, bool]:
        """Repeats a request as needed; returns the last answer and whether it was the first of its process."""
        killed = suspect = False
        while True:
            self.start()
            first = self._answer_count == 0
            try:
                answer, outside = await self._attempt(request, killed)
            except asyncio.CancelledError:
                await self._retire()
                raise
            except BaseException:
                self.retire()
                raise
            self.working = False
            failed = answer.error in (ErrorClass.wrong_output, ErrorClass.crash)
            if outside and not killed:
                killed = True
            elif request.kernel and failed and not first and not suspect:
                suspect = True
            else:
                return answer, first

    async def _attempt(self, request: _Request, killed: bool) -> tuple[Answer, bool]:
        """Sends a request to the child, once, and waits for the answer.

        Args:
            request: the request.
            killed: whether a process was killed from outside at this request before.

        Returns:
            The child's answer, or the cause of its end as a failure; and whether somebody else killed it.
        """
        child, messages = self._child, self._messages
        assert child is not None and messages is not None
        try:
            if not self._ready:
                message = await messages.next(self._settings.start_timeout)
                self._ready = message is not None
            if self._ready:
                self.working, (prepare, limit) = True, request.timeouts
                child.send({**request.header, "prepare_timeout": prepare, "timeout": limit}, request.blob)
                message = await messages.next(prepare, limit)
        except TimeoutError:
            if not self._ready:
                raise self._start_failed(f"was not ready after {messages.limit:g} s") from None
            await self._retire()
            return self._overtime(request, messages), False
        if message is None:
            return await self._handle_death(child, messages, request, killed)
        answer = Answer(*message)
        self._answer_count += 1
        if answer.error in (ErrorClass.out_of_memory, ErrorClass.wrong_output):
            await self._retire()  # a wrong kernel may have written out of bounds
        return answer, False

    async def _handle_death(
        self, child: Child, messages: Messages, request: _Request, killed: bool
    ) -> tuple[Answer, bool]:
        """Converts the death of a child to a failure, see `_attempt`; raises if the child could not start."""
        code, death = await asyncio.to_thread(child.death)
        if not self._ready and (killed or not death.outside):
            raise self._start_failed(death.how)
        self.retire()
        if -code == signal.SIGALRM:  # the child's own alarm came first
            return self._overtime(request, messages), False
        return Answer({"error": death.error, "message": f"the {self._role} process {death.how}"}), death.outside

    def _overtime(self, request: _Request, messages: Messages) -> Answer:
        message = f"the {self._role} process was killed after its time-out of {messages.limit:g} s"
        return Answer({"error": request.late, "message": message})

    def _start_failed(self, how: str) -> PoolError:
        return PoolError(f"a {self._role} process must start, but {how}")

    def _let_go(self) -> Child | None:
        """Detaches the child from this supervisor and returns it, or None."""
        child, self._child, self.working = self._child, None, False
        if self._messages is not None:
            self._messages.close()
        return child

    async def _retire(self) -> None:
        """Ends the child in a thread, as a driver that holds it may delay its end."""
        if (child := self._let_go()) is not None:
            await asyncio.to_thread(child.close)
