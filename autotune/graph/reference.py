"""How fast ONNX Runtime computes given workloads, timed in a process of its own.

The process reads one JSON request from its standard input and answers one JSON line a workload.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from measure.host import cores_for, last_level_cache_bytes, worker_environment
from measure.hostlock import POLL_SECONDS
from search_space.extras import missing
from search_space.workloads import Workload
from targets.threads import check_threads

_ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ("-m", "autotune.graph.reference")
"""What the process that times runs."""
_LOG = logging.getLogger(__name__)


class ReferenceFailure(RuntimeError):
    """The process that times ONNX Runtime ended early or took too long."""


@dataclass(frozen=True)
class ReferencePolicy:
    """How long is timed.

    Attributes:
        samples: fewest executions timed, at least 10.
        budget_seconds: time spent on a workload once those are in.
        rotation_bytes: most memory for rotated weights, cache="network".
        seed: of inputs and weights.
    """

    samples: int = 10
    budget_seconds: float = 0.2
    rotation_bytes: int = 64 << 20
    seed: int = 0

    def __post_init__(self) -> None:
        if self.samples < 10:
            raise ValueError(f"`samples` must be at least 10, but got samples={self.samples}")


def onnxruntime_seconds(
    workloads: Sequence[Workload],
    threads: int,
    cache: str = "warm",
    policy: ReferencePolicy | None = None,
    timeout: float = 600.0,
    stop: Callable[[], bool] | None = None,
) -> list[float | None]:
    """Median seconds of each workload on ONNX Runtime, constant weights, the fastest of its variants.

    The cost of the Python call is measured and taken off, and convolutions may stay in ONNX Runtime's own
    blocked layout, as inside a network. The caller sees to it that nothing else runs meanwhile.

    Args:
        workloads: what to time.
        threads: cores used within a layer.
        cache: `warm`, or `network`: every execution on other weights, so that they are cold.
        policy: how long to time.
        timeout: seconds for all of it.
        stop: asked meanwhile; true: it ends with KeyboardInterrupt.

    Returns:
        Seconds; None where onnxruntime is missing or does not have the operator.

    Raises:
        ReferenceFailure: the process died, or was not done within `timeout`.
    """
    if cache not in ("warm", "network"):
        raise ValueError(f"`cache` must be 'warm' or 'network', but got cache={cache!r}")
    check_threads(threads)
    if not workloads:
        return []
    if why := missing("reference latencies", "onnxruntime"):
        _LOG.warning(why)
        return [None] * len(workloads)
    policy = policy or ReferencePolicy()
    request = {
        "workloads": [w.to_json() for w in workloads],
        "threads": threads,
        "cache": cache,
        "policy": asdict(policy),
    }
    answers = [json.loads(line) for line in _ask(json.dumps(request), timeout, stop).splitlines()]
    return [answer["seconds"] for answer in answers]


def _ask(request: str, timeout: float, stop: Callable[[], bool] | None) -> str:
    """What a process of its own answers. Ctrl-C is the caller's, who says by `stop` that it was pressed."""
    command = [sys.executable, *PROGRAM]
    pipe, end = subprocess.PIPE, time.monotonic() + timeout
    environment = worker_environment([str(_ROOT)])
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=environment, start_new_session=True
    ) as process:
        given: str | None = request
        try:
            while True:
                try:
                    out, errors = process.communicate(given, max(0.0, min(POLL_SECONDS, end - time.monotonic())))
                    break
                except subprocess.TimeoutExpired as error:
                    given = None  # it has been sent
                    if stop is not None and stop():
                        raise KeyboardInterrupt from None
                    if time.monotonic() >= end:
                        raise ReferenceFailure(
                            f"`timeout` must cover all reference timings, but got timeout={timeout} seconds"
                        ) from error
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        last = (errors.strip() or "no message").splitlines()[-1]
        raise ReferenceFailure(f"the process that times ONNX Runtime ended with code {process.returncode}: {last}")
    return out


def serve(request: dict[str, Any]) -> list[dict[str, Any]]:
    """Times the workloads of one request in this process."""
    import numpy as np

    from autotune.graph import ort_runner
    from measure.timing import TimingPolicy, measure

    policy, threads = ReferencePolicy(**request["policy"]), request["threads"]
    timing = TimingPolicy(budget_seconds=policy.budget_seconds, min_samples=policy.samples, max_samples=100_000)
    ort_runner.set_up(threads)
    call = ort_runner.call_seconds(threads)
    answers = []
    for item in request["workloads"]:
        workload = Workload.from_json(item)
        rng = np.random.default_rng(policy.seed)
        arrays = workload.make_inputs(policy.seed)
        runners = ort_runner.candidates(workload, arrays, threads, rng)
        seconds = {name: measure(runner.time, timing).seconds for name, runner in runners.items()}
        best = min(seconds, key=seconds.__getitem__, default=None)
        if best is not None and request["cache"] == "network":
            runners.clear()
            copies = ort_runner.copies_for(workload, last_level_cache_bytes(), policy.rotation_bytes)
            runner = ort_runner.runner_of(workload, arrays, threads, best, rng, copies)
            seconds[best] = measure(runner.time, timing).seconds
        answers.append({"seconds": None if best is None else max(seconds[best] - call, 1e-9), "variant": best})
    return answers


def main() -> None:
    """Answers the request on standard input."""
    replies = os.dup(1)
    os.dup2(2, 1)  # what a library prints must not mix with the answers
    request = json.load(sys.stdin)
    os.sched_setaffinity(0, cores_for(request["threads"]))
    with os.fdopen(replies, "w") as stream:
        stream.writelines(json.dumps(answer) + "\n" for answer in serve(request))


if __name__ == "__main__":
    main()
