"""Trials and records of made-up workloads for the tests of this package."""

from __future__ import annotations

import json
from typing import Any

from measure.pool import Trial, TrialResult
from measure.record import Record
from search_space.schedule.trace import key_of

EXECUTOR = "tests.measure.fake_executor:FakeExecutor"


def trial(args: dict[str, Any] | None = None, options: dict[str, Any] | None = None, **step: Any) -> Trial:
    """Trial of a fake workload; `step` is what `FakeExecutor` plays, `options` are fields of the trial."""
    trace = [{"step": "fake", **step}]
    workload = {"operator": "fake", "args": args or {}}
    keys = {
        "workload_key": f"fake({json.dumps(args or {})})",
        "trace_key": key_of(trace),
    }
    return Trial(workload, "direct", trace, **{**keys, **(options or {})})


def record(seconds: float = 1e-3, time: float = 0.0, **options: Any) -> Record:
    """Record of a fake trial that took `seconds`."""
    step = options.pop("step", 0)
    result = TrialResult(trial(options=options, step_number=step), 0, (seconds,), seconds, spread=0.0, max_error=0.0)
    return Record.of(result, time=time, sketch="tile", order=step, host={"cores": 2})
