"""Timing of given workloads on ONNX Runtime, in a separate process."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from measure.child import Child, ChildError
from measure.child_main import Message, answer_requests, open_parent
from measure.errors import ErrorClass
from measure.host import cores_for, last_level_cache_bytes
from search_space.extras import missing
from search_space.workloads import Workload
from targets.threads import check_threads

PROGRAM = "autotune.graph.reference"
"""Module whose `main` the timing process runs."""
_LOG = logging.getLogger(__name__)


class ReferenceFailure(RuntimeError):
    """A timing process of ONNX Runtime that ended early or took too long."""


@dataclass(frozen=True)
class ReferencePolicy:
    """Durations and limits of the timing.

    Attributes:
        samples: minimum number of timed executions, at least 10.
        budget_seconds: seconds per workload once these are done.
        rotation_bytes: maximum memory for rotated weights, cache="network".
        seed: seed of inputs and weights.
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
    """Measures the median seconds of each workload on ONNX Runtime with constant weights, by its fastest variant.

    The cost of the Python call is measured and subtracted, and convolutions may stay in ONNX Runtime's own blocked
    layout, as inside a network. The caller ensures that nothing else runs meanwhile.

    Args:
        workloads: workloads to time.
        threads: number of cores used within a layer.
        cache: `warm`, or `network`: every execution uses other weights, so that they are cold.
        policy: durations and limits of the timing.
        timeout: seconds for all workloads together.
        stop: polled callback; if it returns true, KeyboardInterrupt is raised.

    Returns:
        Seconds; None if onnxruntime is missing or lacks the operator.

    Raises:
        ReferenceFailure: the process died, or exceeded `timeout`.
    """
    if cache not in ("warm", "network"):
        raise ValueError(f"`cache` must be 'warm' or 'network', but got cache={cache!r}")
    check_threads(threads)
    if not workloads:
        return []
    if why := missing("reference latencies", "onnxruntime"):
        _LOG.warning(why)
        return [None] * len(workloads)
    request = {
        "workloads": [w.to_json() for w in workloads],
        "threads": threads,
        "cache": cache,
        "policy": asdict(policy or ReferencePolicy()),
    }
    try:
        with Child({"cores": cores_for(threads)}, PROGRAM) as child:
            header, _ = child.ask(request, seconds=timeout, stop=stop)
    except ChildError as error:
        if error.death.error is ErrorClass.run_timeout:
            rule = f"`timeout` must cover all reference timings, but got timeout={timeout} seconds"
            raise ReferenceFailure(rule) from error
        raise ReferenceFailure(
            f"the process that times ONNX Runtime must answer, but it {error.death.brief}"
        ) from error
    return list(header["seconds"])


def serve(request: dict[str, Any], blob: bytes = b"") -> Message:
    """Times the workloads of one request in this process."""
    import numpy as np

    from autotune.graph import ort_runner
    from measure.bench import Bench, Sequential
    from measure.timing import Timing, TimingPolicy

    policy, threads = ReferencePolicy(**request["policy"]), request["threads"]
    timing = TimingPolicy(budget_seconds=policy.budget_seconds, min_samples=policy.samples, max_samples=100_000)
    bench = Bench(Sequential(timing))

    def time_runners(runners: Sequence[ort_runner.OrtRunner]) -> list[float]:
        return [found.seconds for found in bench.time(runners) if isinstance(found, Timing)]

    ort_runner.set_up(threads)
    call = ort_runner.call_seconds(threads)
    answers: list[float | None] = []
    for item in request["workloads"]:
        workload = Workload.from_json(item)
        rng = np.random.default_rng(policy.seed)
        arrays = workload.make_inputs(policy.seed)
        runners = ort_runner.candidates(workload, arrays, threads, rng)
        seconds = dict(zip(runners, time_runners(list(runners.values())), strict=True))
        best = min(seconds, key=seconds.__getitem__, default=None)
        if best is not None and request["cache"] == "network":
            runners.clear()
            copies = ort_runner.copies_for(workload, last_level_cache_bytes(), policy.rotation_bytes)
            (seconds[best],) = time_runners([ort_runner.make_runner(workload, arrays, threads, best, rng, copies)])
        # Noise can make a tiny layer faster than an empty call, but times must be positive.
        answers.append(None if best is None else max(seconds[best] - call, 1e-9))
    return {"seconds": answers}, b""


def main() -> None:
    """Answers requests until the parent hangs up."""
    _, channel = open_parent()
    answer_requests(channel, serve)
