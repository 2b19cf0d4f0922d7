"""Trials and records of made-up workloads for the tests of this package."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from typing import Any

from measure.outcome import Outcome
from measure.pool import Trial, TrialResult
from measure.provenance import Provenance
from measure.record import Record
from search_space.schedule.trace import compute_key

EXECUTOR = "tests.measure.fake_executor:FakeExecutor"


def trial(args: dict[str, Any] | None = None, options: dict[str, Any] | None = None, **step: Any) -> Trial:
    """Trial of a fake workload; `step` is what `FakeExecutor` plays, `options` are fields of the trial."""
    trace = [{"step": "fake", **step}]
    workload = {"operator": "fake", "args": args or {}}
    keys = {
        "workload_key": f"fake({json.dumps(args or {})})",
        "trace_key": compute_key(trace),
    }
    return Trial(workload, "direct", trace, **{**keys, **(options or {})})


def record(seconds: float = 1e-3, time: float = 0.0, **options: Any) -> Record:
    """Record of a fake trial that took `seconds`."""
    step = options.pop("step", 0)
    outcome = Outcome((seconds,), seconds, spread=0.0, max_error=0.0)
    result = TrialResult(trial(options=options, step_number=step), 0, outcome)
    return Record.of(result, Provenance(time=time, sketch="tile", order=step), host={"cores": 2})


def change_record(record: Record, **values: Any) -> Record:
    """A record with other values in its trial, outcome and provenance, whichever has a field of that name."""
    parts = {}
    for part in ("trial", "outcome", "provenance"):
        named = {item.name for item in fields(getattr(record, part))} & values.keys()
        parts[part] = replace(getattr(record, part), **{name: values.pop(name) for name in named})
    return replace(record, **{**parts, **values})


def edit_data(data: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """A record's line as data, with other values where the fields of these names are; unknown ones at the top."""
    data = {name: dict(part) if isinstance(part, dict) else part for name, part in data.items()}
    for name, value in values.items():
        holders = (data[part] for part in ("trial", "outcome", "provenance") if isinstance(data.get(part), dict))
        next((part for part in holders if name in part), data)[name] = value
    return data
