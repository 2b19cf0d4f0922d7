"""Interface of peers, and the line-JSON protocol that drives them.

Requests, one JSON object a line on standard input: `{"op": "prepare", "workload": ..., "threads": n, ...}`,
`{"op": "time", "samples": n}`, `{"op": "quit"}`. Each but the last gets one line back: an object, or
`{"error": message}`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.gradients import save_forward_values
from measure.host import cores_for, worker_environment
from search_space.workloads import Workload

ROOT = Path(__file__).resolve().parents[2]
Array = NDArray[Any]


class PeerError(RuntimeError):
    """A peer that cannot do a request, or has ended."""


class Refusal(PeerError):
    """Refusal of a peer that lacks the requested operator; other failures have other types."""


class Peer(ABC):
    """One way to compute a workload."""

    name: str

    @abstractmethod
    def prepare(
        self, workload: Workload, arrays: Sequence[Array], threads: int, options: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Makes everything ready; the result (JSON-able) goes into the results.

        Raises:
            PeerError: the workload is not supported.
        """

    @abstractmethod
    def time(self, samples: int) -> NDArray[np.float64]:
        """Warms up, then seconds of each of `samples` executions, `(samples,)`, less the cost of a call."""

    @abstractmethod
    def output(self) -> Array:
        """Returns the output, in the workload's layout."""


def make_inputs(workload: Workload, seed: int = 0, options: Mapping[str, Any] | None = None) -> list[Array]:
    """Makes the arrays that every peer gets; of a gradient, some are values of the forward pass."""
    arrays = workload.make_inputs(seed)
    gradient = (options or {}).get("gradient")
    return arrays if gradient is None else save_forward_values(gradient, arrays)


def serve(peer: Peer) -> None:
    """Answers requests to a peer on standard input until `quit` or its end."""
    answer_all(lambda request: _answer(peer, request))


def answer_all(answer: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Answers requests on standard input until `quit` or its end."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints must not mix with the replies
    for line in sys.stdin:
        request = json.loads(line)
        if request["op"] == "quit":
            return
        try:
            reply = answer(request)
        except PeerError as error:
            reply = {"error": str(error), "refused": True}
        except Exception:
            reply = {"error": traceback.format_exc()}
        replies.write(json.dumps(reply) + "\n")
        replies.flush()


def _answer(peer: Peer, request: dict[str, Any]) -> dict[str, Any]:
    if request["op"] == "prepare":
        threads = request["threads"]
        if request.get("pin", True):
            os.sched_setaffinity(0, cores_for(threads))
        workload = Workload.from_json(request["workload"])
        options = request.get("options", {})
        return peer.prepare(workload, make_inputs(workload, options=options), threads, options)
    if request["op"] == "time":
        return {"seconds": peer.time(request["samples"]).tolist()}
    if request["op"] == "warm":
        end = time.perf_counter() + request["seconds"]
        while time.perf_counter() < end:
            peer.time(5)
        return {}
    raise PeerError(f"`op` must be prepare, warm, time or quit, but got op={request['op']!r}")


class PeerProcess:
    """A peer in a process of its own; a context manager.

    Args:
        module: the peer's program, run with `python -m`.
        python: interpreter, for peers that live in an environment of their own.
        environment: variables on top of the usual ones.
    """

    def __init__(self, module: str, python: str = sys.executable, environment: Mapping[str, str] | None = None) -> None:
        self.module = module
        self._process = subprocess.Popen(
            [python, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**worker_environment([str(ROOT)]), **(environment or {})},
        )

    def prepare(self, workload: Workload, threads: int, **options: Any) -> dict[str, Any]:
        """Has the peer make ready; returns its facts."""
        request = {"op": "prepare", "workload": workload.to_json(), "threads": threads, "options": options}
        return self.ask(request)

    def warm(self, seconds: float) -> None:
        """Executes for so long without timing."""
        self.ask({"op": "warm", "seconds": seconds})

    def time(self, samples: int) -> list[float]:
        """Times each of `samples` executions in seconds."""
        seconds: list[float] = self.ask({"op": "time", "samples": samples})["seconds"]
        return seconds

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the peer's answer to a request.

        Raises:
            PeerError: the peer refuses, or has ended.
        """
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise PeerError(f"{self.module} ended with code {self._process.wait()}") from None
        line = self._process.stdout.readline()
        if not line:
            raise PeerError(f"{self.module} ended with code {self._process.wait()}")
        reply: dict[str, Any] = json.loads(line)
        if "error" in reply:
            raise (Refusal if reply.get("refused") else PeerError)(f"{self.module}: {reply['error']}")
        return reply

    def close(self) -> None:
        """Ends the process."""
        assert self._process.stdin is not None and self._process.stdout is not None
        if self._process.poll() is None:
            try:
                self._process.stdin.write('{"op": "quit"}\n')
                self._process.stdin.close()
                self._process.wait(timeout=10)
            except (BrokenPipeError, subprocess.TimeoutExpired):
                self._process.kill()
                self._process.wait()
        self._process.stdout.close()

    def __enter__(self) -> PeerProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
