"""An executor whose kernels misbehave on demand: the trace's one step says how.

`build` and `run` of the step name a behaviour; `seconds` is the latency that the kernel reports or sleeps.
"""

from __future__ import annotations

import ctypes
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from measure.errors import ErrorClass, TrialFailure
from measure.interface import Task
from targets.base import Bound, RunError


def _segfault() -> None:
    ctypes.string_at(0)


def _hang() -> None:
    ctypes.PyDLL(None).pause()  # stuck in C, the interpreter lock held


def _hang_once(mark: str) -> None:
    """Hangs where the file `mark` is not there yet."""
    if not Path(mark).exists():
        Path(mark).touch()
        _hang()


def _eat() -> None:
    hoard = []
    while True:
        hoard.append(bytearray(64 << 20))


def _bug() -> None:
    raise AttributeError("a fault in our own code")


def _refuse() -> None:
    raise RunError("the device refuses the call")


def _no_memory() -> None:
    raise MemoryError("no room for the workspace")


def _abort() -> None:
    os.write(2, b"LLVM ERROR: cannot select\n")
    os.abort()


def _exhaust() -> None:
    os.write(2, b"LLVM ERROR: out of memory\n")
    os.abort()


def _kill() -> None:
    os.kill(os.getpid(), 9)


class _DeviceLost(RunError):
    fatal = True


def _lose() -> None:
    raise _DeviceLost("a kernel must run to its end, but the driver says: illegal address")


_DEEDS = {
    "lost": _lose,
    "segfault": _segfault,
    "hang": _hang,
    "eat": _eat,
    "bug": _bug,
    "refuse": _refuse,
    "no_memory": _no_memory,
    "abort": _abort,
    "exhaust": _exhaust,
    "killed": _kill,
    "ok": lambda: None,
}


class FakeBound(Bound):
    """A kernel over arrays that copies its input to its output."""

    def __init__(self, step: dict[str, Any], task: Task, copies: int = 1) -> None:
        self.step, self.task, self.copies = step, task, copies
        self.deterministic = bool(step.get("deterministic"))
        self.output = np.empty_like(task.inputs[0])
        self.inputs, self.outputs = task.inputs, [self.output]

    def run(self, threads: int | None = None) -> np.ndarray:
        how = self.step.get("run", "ok")
        if how == "fresh_buffer":
            return self.inputs[0].copy()
        if how == "wrong_dtype":
            return self.inputs[0].astype(np.float64)
        if how == "hang_once":
            _hang_once(self.step["mark"])
        _DEEDS.get(how, _DEEDS["ok"])()
        if self.step.get("sleep"):
            time.sleep(self.step["seconds"])
        self.output[...] = self.inputs[0]
        if how == "wrong":
            self.output[1] += 1
        if how == "poisoned":
            self.output[2] = np.nan
        if how == "spoil":  # writes where it should not, yet answers right
            self.inputs[0][0] += 1
        return self.output

    def time(self, iterations: int, threads: int | None = None) -> np.ndarray:
        seconds = self.step.get("seconds", 1e-3)
        if self.step.get("run") != "idle":  # what is timed works, too
            self.output[...] = self.inputs[0]
        if self.step.get("run") == "spoil":
            self.inputs[0][0] += iterations
        if self.step.get("sleep"):
            time.sleep(seconds * iterations)
        if self.step.get("run") == "spoil_late":  # checked already: nothing tells on it
            self.task.inputs[0][0] += 1
        return np.full(iterations, seconds)

    def feed(self, inputs: Any, fill: int) -> None:
        self.inputs = inputs

    def fetch(self) -> np.ndarray:
        return self.output

    def damage(self) -> str:
        return "a kernel must write to its output alone" if self.step.get("run") == "damage" else ""

    def metrics(self) -> dict[str, float]:
        return dict(self.step.get("metrics", {}))


class LazyBound(FakeBound):
    """A kernel that leaves an element unwritten, in memory that holds the right answer from before."""

    def __init__(self, step: dict[str, Any], task: Task, copies: int = 1) -> None:
        super().__init__(step, task, copies)
        self.output[...] = task.inputs[0]

    def run(self, threads: int | None = None) -> np.ndarray:
        self.output[:-1] = self.inputs[0][:-1]
        return self.output


class FakeExecutor:
    """An executor that plays the step of the trace."""

    def build(self, trial: Any) -> bytes:
        step = dict(trial.trace[0])
        how = step.get("build", "ok")
        if how == "slow":
            time.sleep(step["build_seconds"])
        elif how == "hang_once":
            _hang_once(step["mark"])
        elif how in ("instantiation", "compile"):
            raise TrialFailure(ErrorClass(how), f"`factor` must divide extent, but got {how}")
        else:
            _DEEDS[how]()
        return json.dumps(step).encode()

    def prepare(self, trial: Any, reference: bool = True) -> Task:
        args = trial.workload["args"]
        if args.get("log"):
            with Path(args["log"]).open("a") as log:
                log.write("prepared\n")
        if args.get("prepare") == "nan":
            bad = np.full(4, np.nan, np.float32)
            return Task([bad], bad, 0.0, 0.0)
        if args.get("prepare") == "hang":
            _hang()
        values, others = np.random.default_rng(trial.seed).random((2, args.get("size", 4)), dtype=np.float32)
        answers = (values, others) if reference else (None, None)
        return Task([values.copy()], answers[0], 1e-6, 0.0, 1000, 1 << 20, [others.copy()], answers[1])

    def bind(self, trial: Any, module: bytes, task: Task, copies: int) -> FakeBound:
        step = json.loads(module)
        if step.get("bind"):
            raise TrialFailure(ErrorClass.crash, "the loader refuses it")
        return (LazyBound if step.get("run") == "lazy" else FakeBound)(step, task, copies)


class BrokenExecutor:
    """Cannot even be made."""

    def __init__(self) -> None:
        raise ImportError("no such accelerator")
