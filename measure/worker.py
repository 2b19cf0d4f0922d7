"""The program of a worker process: build trials, or run, check and time them, one request at a time.

Requests and replies are `measure.wire` frames. A reply's `stage` is its kind: `ready` once after start, `prepared`
when a task's reference is ready, `done` with the outcome. An exception in a trial becomes an outcome; the parent
notices when the process dies.
"""

from __future__ import annotations

import gc
import math
import os
import resource
import signal
import sys
import time
import traceback
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from measure import kernel_call
from measure.bench import Bench, Interleaved, Sequential, Timeable
from measure.check import Comparison
from measure.child_main import open_parent, requests
from measure.errors import ErrorClass, TrialFailure
from measure.interface import Executor, Task, bind_rotated, load_executor
from measure.output_check import OutputCheck, References
from measure.pool import TaskKey, Trial
from measure.timing import TimingPolicy
from measure.wire import pack
from targets.base import RunError

_GRACE = 1.0
"""Seconds after a time-out in which the parent should end a worker, before the worker ends itself."""
_MESSAGE = 1500  # characters of a failure that are kept
GARBAGE = 100_000
"""Allocations after which Python searches for cycles. Lowering makes many objects and hardly a cycle, so searching
after every 700, Python's default, is a waste of time."""

Header = dict[str, Any]


class Worker(Protocol):
    """Handler of one kind of request."""

    def handle(self, request: Header, blob: bytes, on_prepared: Callable[[], None]) -> tuple[Header, bytes]:
        """Performs `request`; calls `on_prepared` when the limited time begins."""


class BuildHandler:
    """Handler of build requests."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    def handle(self, request: Header, blob: bytes, on_prepared: Callable[[], None]) -> tuple[Header, bytes]:
        """Builds the trial of `request`."""
        return {}, self._executor.build(Trial.from_json(request["trial"]))


class Runner:
    """Handler of run requests; keeps inputs and references of the last tasks.

    Args:
        executor: executor that loads and binds kernels.
        task_bytes: most memory for the tasks that are kept.
    """

    def __init__(self, executor: Executor, task_bytes: int) -> None:
        self._executor = executor
        self._task_bytes = task_bytes
        self._tasks: OrderedDict[tuple[TaskKey, bool], tuple[Task, References | None]] = OrderedDict()

    def handle(self, request: Header, blob: bytes, on_prepared: Callable[[], None]) -> tuple[Header, bytes]:
        """Checks and times the trial of `request`, whose machine code is `blob`, or runs a kernel's call."""
        if "call" in request:
            return kernel_call.handle(request["call"], blob, on_prepared)
        trial = Trial.from_json(request["trial"])
        task, references = self._prepare(trial, request.get("check", True))
        on_prepared()
        policy = Sequential(TimingPolicy(**request["timing"]), request.get("best_seconds", trial.best_seconds))
        return self._run(trial, blob, task, references, policy)

    def _prepare(self, trial: Trial, check: bool) -> tuple[Task, References | None]:
        key = (trial.task_key, check)
        if key not in self._tasks:
            task = self._executor.prepare(trial) if check else self._executor.prepare(trial, False)
            self._tasks[key] = (task, References.of(task))
        self._tasks.move_to_end(key)
        while len(self._tasks) > 1 and sum(_held_bytes(*kept) for kept in self._tasks.values()) > self._task_bytes:
            self._tasks.popitem(last=False)
        return self._tasks[key]

    def _run(
        self, trial: Trial, module: bytes, task: Task, references: References | None, how: Sequential
    ) -> tuple[Header, bytes]:
        policy = how.policy
        kernel = TimedKernel(self._executor, trial, module, task, references, policy.rotation_bytes)
        (timing,) = Bench(how).time([kernel])
        if isinstance(timing, TrialFailure):
            return _make_failure(timing, kernel.max_error), b""
        output = kernel.output_check.output
        copied = b"" if references is not None else output.tobytes()
        cut = f"cut short after the first samples: over {policy.cut_ratio:g}x the best" if timing.cut else ""
        described = {} if references is not None else {"output": {"dtype": str(output.dtype), "shape": output.shape}}
        return {
            **described,
            "latencies": timing.latencies,
            "seconds": timing.seconds,
            "spread": timing.spread,
            "message": cut,
            "max_error": kernel.max_error,
            "rotation_bytes": kernel.rotation_bytes,
            "metrics": kernel.bound.metrics(),
        }, copied


class GroupRunner:
    """Handler of requests to time a group of built trials interleaved, see `measure.interleaved`.

    Args:
        executor: executor that loads and binds kernels.
    """

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    def handle(self, request: Header, blob: bytes, on_prepared: Callable[[], None]) -> tuple[Header, bytes]:
        """Times the trials of `request`, whose modules are one after the other in `blob`."""
        results: list[Header] = []
        kernels: dict[int, TimedKernel] = {}
        tasks: dict[TaskKey, tuple[Task, References | None]] = {}
        end = 0
        for index, (data, built) in enumerate(zip(request["trials"], request["built"], strict=True)):
            trial, module = Trial.from_json(data), blob[end : end + built["bytes"]]
            end += built["bytes"]
            results.append({name: built[name] for name in ("error", "message") if name in built})
            if results[-1]:
                continue
            key = trial.task_key
            if key not in tasks:
                task = self._executor.prepare(trial, request["check"])
                tasks[key] = task, References.of(task)
            on_prepared()  # restarts the time-out for this trial
            try:
                held = (*tasks[key], request["rotation_bytes"], request["check"])
                kernels[index] = TimedKernel(self._executor, trial, module, *held)
            except TrialFailure as failure:
                results[index] = _make_failure(failure)
        policy = Interleaved(request["rounds"], request["burst_seconds"], seed=request["seed"])
        timings = Bench(policy, on_prepared).time(list(kernels.values()))
        for (index, kernel), timing in zip(kernels.items(), timings, strict=True):
            if isinstance(timing, TrialFailure):
                results[index] = _make_failure(timing)
            else:
                found = {"latencies": timing.latencies, "rotation_bytes": kernel.rotation_bytes}
                results[index] = {**found, "metrics": kernel.bound.metrics()}
        return {"results": results}, b""


class TimedKernel(Timeable):
    """A built trial bound to the inputs of its task.

    Args:
        executor: executor that binds it.
        trial, module: the trial, and its machine code.
        task, references: inputs, and the reference outputs; None: the output is not compared here.
        rotation_bytes: most memory for rotated copies of constants.
        checks: whether the output is checked after the timing.

    Attributes:
        bound: the kernel with its inputs.
        rotation_bytes: bytes of the copies of constants; 0 if nothing rotates.
        output_check: check of its outputs.
        max_error: error of the comparison that failed, or the largest of all.

    Raises:
        TrialFailure: the trial cannot be bound.
    """

    def __init__(
        self,
        executor: Executor,
        trial: Trial,
        module: bytes,
        task: Task,
        references: References | None,
        rotation_bytes: int,
        checks: bool = True,
    ) -> None:
        self.bound, self.rotation_bytes = bind_rotated(executor, trial, module, task, rotation_bytes)
        self.output_check = OutputCheck(self.bound, task, references, trial.threads)
        self.deterministic = self.bound.deterministic
        self._checks, self._threads, self.max_error = checks, trial.threads, math.nan

    def prepare(self) -> float:
        self._judge(self.output_check.before())
        self.output_check.begin()
        return self.output_check.run_seconds

    def time(self, iterations: int) -> NDArray[np.float64]:
        return self.bound.time(iterations, self._threads)

    def check(self, last: bool) -> None:
        if self._checks:
            self._judge(self.output_check.after(last))

    def _judge(self, comparison: Comparison) -> None:
        if not comparison.ok:
            self.max_error = comparison.max_error
            raise TrialFailure(ErrorClass.wrong_output, comparison.message)
        self.max_error = self.output_check.max_error


def _make_failure(failure: TrialFailure, max_error: float | None = None) -> Header:
    header: Header = {"error": failure.error, "message": failure.message}
    return header if max_error is None else {**header, "max_error": max_error}


def main() -> None:
    """Serves requests until the parent hangs up."""
    options, channel = open_parent()
    _confine(options)
    executor = load_executor(options["executor"])
    gc.set_threshold(GARBAGE)
    worker = _ROLES[options["role"]](executor, options)
    channel.send(pack({"stage": "ready"}))
    for request, blob in requests(channel):
        _arm(request["prepare_timeout"])

        def report_prepared(request: Header = request) -> None:
            _arm(request["timeout"])
            channel.send(pack({"stage": "prepared"}))

        channel.send(_outcome(worker, request, blob, report_prepared))
        _arm(0)


_ROLES: dict[str, Callable[[Executor, Header], Worker]] = {
    "build": lambda executor, options: BuildHandler(executor),
    "run": lambda executor, options: Runner(executor, options["task_bytes"]),
    "interleaved": lambda executor, options: GroupRunner(executor),
}


def _outcome(worker: Worker, request: Header, blob: bytes, on_prepared: Callable[[], None]) -> bytes:
    """Handles one request; returns a frame with its outcome."""
    spans = [time.monotonic()]

    def begin() -> None:
        on_prepared()
        spans[0] = time.monotonic()  # making the reference does not count as the trial's time

    header: Header
    result = b""
    try:
        header, result = worker.handle(request, blob, begin)
    except TrialFailure as failure:
        header = {"error": failure.error, "message": failure.message[:_MESSAGE]}
    except RunError as error:
        if error.fatal:  # ends this process, so that the next trial gets a fresh one
            print(error, file=sys.stderr, flush=True)
            os._exit(1)
        short = isinstance(error, MemoryError)  # the device's memory is full
        header = {"error": ErrorClass.out_of_memory if short else ErrorClass.crash, "message": str(error)[:_MESSAGE]}
    except MemoryError as error:
        header = {"error": ErrorClass.out_of_memory, "message": f"ran out of memory: {error}"[:_MESSAGE]}
    except Exception as error:
        # A fault in our own code must not end the run because of one candidate; its record keeps the traceback.
        text = "".join(traceback.format_exception(error))
        header = {"error": ErrorClass.unknown, "message": text[-_MESSAGE:]}
    return pack({"stage": "done", "span": [spans[0], time.monotonic()], **header}, result)


def _arm(seconds: float) -> None:
    """Lets the system end this process after `seconds` and a grace period, even if native code hangs; 0: never."""
    signal.setitimer(signal.ITIMER_REAL, seconds + _GRACE if seconds else 0)


def _confine(options: Header) -> None:
    """Sets the memory limit and the signals of this process."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if options["memory_bytes"]:
        resource.setrlimit(resource.RLIMIT_AS, (options["memory_bytes"], options["memory_bytes"]))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)


def _held_bytes(task: Task, references: References | None) -> int:
    arrays = {id(array): array.nbytes for array in (*task.inputs, *task.others)}  # constants are in both
    made = sum(array.nbytes for array in (task.expected, task.others_expected) if array is not None)
    return sum(arrays.values()) + made + (0 if references is None else references.nbytes)
