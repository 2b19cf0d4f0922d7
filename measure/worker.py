"""The program of a worker process: build trials, or run, check and time them, one request at a time.

Requests and replies are `measure.wire` frames. A reply's `stage` says what it is: `ready` once after start,
`prepared` when a task's reference is at hand, `done` with the outcome. An exception in a trial becomes an
outcome; what kills the process is the parent's to notice.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import signal
import sys
import time
import traceback
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from measure.check import Oracle
from measure.errors import ErrorClass, TrialFailure
from measure.interface import Executor, Task, load_executor
from measure.pool import Trial
from measure.timing import TimingPolicy, measure, rotation_copies
from measure.wire import pack, unpack
from targets.base import RunError

_GRACE = 1.0
"""Seconds after which a worker ends itself, should the parent not have done it in time."""
_MESSAGE = 1500
_GARBAGE = 100_000
"""Objects after which Python looks for cycles. Lowering makes many objects and hardly a cycle: with Python's own 700 a
tenth of a build is spent looking."""

Header = dict[str, Any]


class Builder:
    """Answers build requests."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    def handle(self, request: Header, _blob: bytes, _prepared: Callable[[], None]) -> tuple[Header, bytes]:
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
        self._tasks: OrderedDict[tuple[str, int], tuple[Task, Oracle]] = OrderedDict()

    def handle(self, request: Header, module: bytes, prepared: Callable[[], None]) -> tuple[Header, bytes]:
        """Checks and times the trial of `request`, whose machine code is `module`."""
        trial = Trial.from_json(request["trial"])
        task, oracle = self._prepare(trial)
        prepared()
        return self._run(trial, module, task, oracle, TimingPolicy(**request["timing"])), b""

    def _prepare(self, trial: Trial) -> tuple[Task, Oracle]:
        key = (trial.workload_key, trial.seed)
        if key not in self._tasks:
            task = self._executor.prepare(trial)
            self._tasks[key] = (task, Oracle(task.expected, task.rtol, task.atol))
        self._tasks.move_to_end(key)
        while len(self._tasks) > 1 and sum(_held_bytes(*kept) for kept in self._tasks.values()) > self._task_bytes:
            self._tasks.popitem(last=False)
        return self._tasks[key]

    def _run(self, trial: Trial, module: bytes, task: Task, oracle: Oracle, policy: TimingPolicy) -> Header:
        copies = 1
        if trial.cache == "network" and task.constant_bytes:
            copies = max(2, rotation_copies(task.constant_bytes, task.cache_bytes, policy.rotation_bytes))
        bound = self._executor.bind(trial, module, task, copies)
        output = bound.run(trial.threads)  # warms caches up, and gives the buffer to poison
        again, checked_seconds = output, 0.0
        if not bound.deterministic:
            oracle.poison(output)
            start = time.perf_counter()
            again = bound.run(trial.threads)
            checked_seconds = time.perf_counter() - start
        comparison = oracle.compare(again)
        if not comparison.ok:
            return {
                "error": ErrorClass.wrong_output,
                "message": comparison.message,
                "max_error": comparison.max_error,
            }
        if not np.may_share_memory(output, again):
            raise RuntimeError("`Bound.run` must return the same buffer each time, but got another one")
        if bound.deterministic:
            policy = replace(policy, min_samples=1, max_samples=1)
        timing = measure(
            lambda iterations: bound.time(iterations, trial.threads),
            policy,
            None if bound.deterministic else trial.best_seconds,
            checked_seconds,
        )
        cut = f"cut short after one sample: over {policy.cut_ratio:g}x the best" if timing.cut else ""
        return {
            "latencies": timing.latencies,
            "seconds": timing.seconds,
            "spread": timing.spread,
            "message": cut,
            "max_error": comparison.max_error,
            "rotation_bytes": bound.copies * task.constant_bytes if bound.copies > 1 else 0,
            "metrics": bound.metrics(),
        }


def main() -> None:
    """Serves requests until the parent hangs up."""
    options = json.loads(sys.argv[1])
    _confine(options)
    connection: Connection[Any, Any] = Connection(options["descriptor"])
    executor = load_executor(options["executor"])
    gc.set_threshold(_GARBAGE)
    worker = Builder(executor) if options["role"] == "build" else Runner(executor, options["task_bytes"])
    connection.send_bytes(pack({"stage": "ready"}))
    while True:
        try:
            request, blob = unpack(connection.recv_bytes())
        except EOFError:
            return
        _arm(request["prepare_timeout"])

        def prepared(request: Header = request) -> None:
            _arm(request["timeout"])
            connection.send_bytes(pack({"stage": "prepared"}))

        connection.send_bytes(_outcome(worker, request, blob, prepared))
        _arm(0)


def _outcome(worker: Builder | Runner, request: Header, blob: bytes, prepared: Callable[[], None]) -> bytes:
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
        header = {"error": ErrorClass.crash, "message": str(error)[:_MESSAGE]}
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
    """Sets affinity, memory limit and signals of this process."""
    os.sched_setaffinity(0, options["cores"])
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if options["memory_bytes"]:
        resource.setrlimit(resource.RLIMIT_AS, (options["memory_bytes"], options["memory_bytes"]))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)


def _held_bytes(task: Task, oracle: Oracle) -> int:
    return sum(array.nbytes for array in task.inputs) + task.expected.nbytes + oracle.nbytes
