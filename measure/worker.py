"""The program of a worker process: build trials, or run, check and time them, one request at a time.

Requests and replies are `measure.wire` frames. A reply's `stage` says what it is: `ready` once after start,
`prepared` when a task's reference is at hand, `done` with the outcome. An exception in a trial becomes an
outcome; what kills the process is the parent's to notice.
"""

from __future__ import annotations

import gc
import os
import resource
import signal
import sys
import time
import traceback
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

from measure import kernel_call
from measure.check import Comparison
from measure.child_main import open_parent, requests
from measure.errors import ErrorClass, TrialFailure
from measure.interface import Executor, Task, bind_rotated, load_executor
from measure.interleaved_worker import InterleavedRunner
from measure.output_check import OutputCheck, References
from measure.pool import TaskKey, Trial
from measure.timing import TimingPolicy, measure
from measure.wire import pack
from targets.base import RunError

_GRACE = 1.0
"""Seconds after which a worker ends itself, should the parent not have done it in time."""
_MESSAGE = 1500
GARBAGE = 100_000
"""Objects after which Python looks for cycles. Lowering makes many objects and hardly a cycle, so looking after
every 700, as Python does by itself, is time lost."""

Header = dict[str, Any]


class Worker(Protocol):
    """Answers one kind of request."""

    def handle(self, request: Header, blob: bytes, prepared: Callable[[], None]) -> tuple[Header, bytes]:
        """Does what `request` asks for; `prepared` is called when the time that it may take begins."""


class Builder:
    """Answers build requests."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    def handle(self, request: Header, blob: bytes, prepared: Callable[[], None]) -> tuple[Header, bytes]:
        """Builds the trial of `request`."""
        return {}, self._executor.build(Trial.from_json(request["trial"]))


class Runner:
    """Answers run requests; keeps inputs and references of the tasks it has seen last.

    Args:
        executor: loads and binds kernels.
        task_bytes: most memory for what is kept.
    """

    def __init__(self, executor: Executor, task_bytes: int) -> None:
        self._executor = executor
        self._task_bytes = task_bytes
        self._tasks: OrderedDict[tuple[TaskKey, bool], tuple[Task, References | None]] = OrderedDict()

    def handle(self, request: Header, blob: bytes, prepared: Callable[[], None]) -> tuple[Header, bytes]:
        """Checks and times the trial of `request`, whose machine code is `blob`, or runs a kernel's call."""
        if "call" in request:
            return kernel_call.handle(request["call"], blob, prepared)
        trial = Trial.from_json(request["trial"])
        task, references = self._prepare(trial, request.get("check", True))
        prepared()
        return self._run(trial, blob, task, references, TimingPolicy(**request["timing"]))

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
        self, trial: Trial, module: bytes, task: Task, references: References | None, policy: TimingPolicy
    ) -> tuple[Header, bytes]:
        bound, rotation = bind_rotated(self._executor, trial, module, task, policy.rotation_bytes)
        check = OutputCheck(bound, task, references, trial.threads)
        comparison = check.before()
        if not comparison.ok:
            return _refused(comparison), b""
        if bound.deterministic:
            policy = replace(policy, min_samples=1, max_samples=1)
        check.begin()
        timing = measure(
            lambda iterations: bound.time(iterations, trial.threads),
            policy,
            None if bound.deterministic else trial.best_seconds,
            check.run_seconds,
        )
        comparison = check.after(last=not timing.cut)
        if not comparison.ok:
            return _refused(comparison), b""
        output = check.output
        copied = b"" if references is not None else output.tobytes()
        cut = f"cut short after one sample: over {policy.cut_ratio:g}x the best" if timing.cut else ""
        described = {} if references is not None else {"output": {"dtype": str(output.dtype), "shape": output.shape}}
        return {
            **described,
            "latencies": timing.latencies,
            "seconds": timing.seconds,
            "spread": timing.spread,
            "message": cut,
            "max_error": check.max_error,
            "rotation_bytes": rotation,
            "metrics": bound.metrics(),
        }, copied


def _refused(comparison: Comparison) -> Header:
    return {
        "error": ErrorClass.wrong_output,
        "message": comparison.message,
        "max_error": comparison.max_error,
    }


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

        def prepared(request: Header = request) -> None:
            _arm(request["timeout"])
            channel.send(pack({"stage": "prepared"}))

        channel.send(_outcome(worker, request, blob, prepared))
        _arm(0)


_ROLES: dict[str, Callable[[Executor, Header], Worker]] = {
    "build": lambda executor, options: Builder(executor),
    "run": lambda executor, options: Runner(executor, options["task_bytes"]),
    "interleaved": lambda executor, options: InterleavedRunner(executor),
}


def _outcome(worker: Worker, request: Header, blob: bytes, prepared: Callable[[], None]) -> bytes:
    """Frame with the outcome of one request."""
    spans = [time.monotonic()]

    def started() -> None:
        prepared()
        spans[0] = time.monotonic()  # the reference is no part of the trial's time

    header: Header
    result = b""
    try:
        header, result = worker.handle(request, blob, started)
    except TrialFailure as failure:
        header = {"error": failure.error, "message": failure.message[:_MESSAGE]}
    except RunError as error:
        if error.fatal:  # as if the kernel had killed it: the next trial gets a fresh process
            print(error, file=sys.stderr, flush=True)
            os._exit(1)
        short = isinstance(error, MemoryError)  # of the device
        header = {"error": ErrorClass.out_of_memory if short else ErrorClass.crash, "message": str(error)[:_MESSAGE]}
    except MemoryError as error:
        header = {"error": ErrorClass.out_of_memory, "message": f"ran out of memory: {error}"[:_MESSAGE]}
    except Exception as error:
        # A fault in our own code under one candidate must not end the run; the record keeps its traceback.
        text = "".join(traceback.format_exception(error))
        header = {"error": ErrorClass.unknown, "message": text[-_MESSAGE:]}
    return pack({"stage": "done", "span": [spans[0], time.monotonic()], **header}, result)


def _arm(seconds: float) -> None:
    """Lets the system end this process after `seconds` and a grace, even if native code hangs; 0: never."""
    signal.setitimer(signal.ITIMER_REAL, seconds + _GRACE if seconds else 0)


def _confine(options: Header) -> None:
    """Sets memory limit and signals of this process."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if options["memory_bytes"]:
        resource.setrlimit(resource.RLIMIT_AS, (options["memory_bytes"], options["memory_bytes"]))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)


def _held_bytes(task: Task, references: References | None) -> int:
    arrays = {id(array): array.nbytes for array in (*task.inputs, *task.others)}  # constants are in both
    made = sum(array.nbytes for array in (task.expected, task.others_expected) if array is not None)
    return sum(arrays.values()) + made + (0 if references is None else references.nbytes)
