"""The worker's side of `measure.interleaved`: binds a group of built kernels, and times their bursts by turns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from measure.errors import ErrorClass, TrialFailure
from measure.interface import Executor, Task, bind_rotated
from measure.output_check import OutputCheck, References
from measure.pool import TaskKey, Trial
from targets.base import Bound


class InterleavedRunner:
    """Answers requests to time a group of trials in interleaved rounds."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    def handle(
        self, request: dict[str, Any], blob: bytes, prepared: Callable[[], None]
    ) -> tuple[dict[str, Any], bytes]:
        """Times the trials of `request`, whose modules are one after the other in `blob`."""
        results: list[dict[str, Any]] = []
        bounds: dict[int, tuple[Bound, int]] = {}
        checks: dict[int, OutputCheck] = {}
        tasks: dict[TaskKey, tuple[Task, References | None]] = {}
        end = 0
        for place, (data, built) in enumerate(zip(request["trials"], request["built"], strict=True)):
            trial, module = Trial.from_json(data), blob[end : end + built["bytes"]]
            end += built["bytes"]
            if "error" in built:
                results.append({"error": built["error"], "message": built["message"]})
                continue
            key = trial.task_key
            if key not in tasks:
                task = self._executor.prepare(trial, request["check"])
                tasks[key] = task, References.of(task)
            task, references = tasks[key]
            prepared()  # the time that it may take begins anew
            try:
                bound, rotation = bind_rotated(self._executor, trial, module, task, request["rotation_bytes"])
                check = OutputCheck(bound, task, references, trial.threads)
                if not (comparison := check.before()).ok:
                    raise TrialFailure(ErrorClass.wrong_output, comparison.message)
                check.begin()
            except TrialFailure as failure:
                results.append({"error": failure.error, "message": failure.message})
                continue
            results.append({"latencies": [], "rotation_bytes": rotation, "metrics": bound.metrics()})
            bounds[place] = bound, trial.threads
            checks[place] = check
        rng = np.random.default_rng(request["seed"])
        places = np.array(sorted(bounds), np.int64)
        iterations = {}
        for place in places.tolist():
            bound, threads = bounds[place]
            once = float(np.min(bound.time(1, threads)))
            if once < request["burst_seconds"]:
                once = float(np.min(bound.time(3, threads)))
            iterations[place] = max(1, int(request["burst_seconds"] / max(once, 1e-9)))
        for _ in range(request["rounds"]):
            prepared()
            for place in rng.permutation(places).tolist():
                bound, threads = bounds[place]
                results[place]["latencies"].append(float(np.median(bound.time(iterations[place], threads))))
        for place, check in checks.items():
            prepared()
            if request["check"] and not (comparison := check.after()).ok:
                results[place] = {"error": ErrorClass.wrong_output, "message": comparison.message}
        return {"results": results}, b""
