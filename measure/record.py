"""One measurement as one JSON line: what was tried, where, how, and what came of it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import orjson

from measure import readers
from measure.errors import ErrorClass, RecordError
from measure.journal import LineReader
from measure.pool import Trial, TrialResult

SCHEMA = "autotune.record/1"
"""Name and version of the line format; a change of any field's meaning is a new version."""

_SCORE = re.compile(r"(?:^| )score=(\S+)")


class Place(NamedTuple):
    """Where a record stands."""

    reader: LineReader
    offset: int  # bytes
    line: int  # from 1


@dataclass(frozen=True)
class Record:
    """One measured trial; everything needed to repeat it and to judge it.

    Attributes:
        workload, workload_key: the workload's JSON form and its stable key.
        algorithm: the definition of the workload that was scheduled.
        trace, trace_key: the schedule's JSON form, numbers included, and its stable key.
        target: name of the target.
        threads: threads the kernel ran on.
        cache: `warm` or `network`, see `measure.pool.Cache`.
        rotation_bytes: bytes of rotated constants, 0 where nothing was rotated.
        latencies: seconds of each sample; empty on failure.
        seconds: median of `latencies`; NaN on failure, null in the file.
        spread: (p75 - p25) / median of `latencies`; NaN on failure, null in the file.
        error: class of the failure, or `ok`.
        message: one sentence on the failure, or empty.
        max_error: largest difference to the reference / largest reference value; NaN where not compared.
        build_seconds, run_seconds: wall time of the two phases; NaN where there was none.
        host: description of the machine, see `measure.host.describe_host`; what a fleet's device says of itself.
        seed: of the random inputs.
        sketch: name of the sketch that the trace came from.
        time: Unix seconds at which the result came in.
        order: place of the trial in its task's run, from 0.
        provenance: what proposed the trial, in the caller's words.
        metrics: what else the target knows of an execution, by name; left out of the line where there is nothing.
        place: where in a file it stands, if it does; no part of the record.
    """

    workload: Mapping[str, Any]
    workload_key: str
    algorithm: str
    trace: tuple[Mapping[str, Any], ...]
    trace_key: str
    target: str
    threads: int
    cache: str
    seed: int
    error: ErrorClass
    latencies: tuple[float, ...] = ()
    seconds: float = math.nan
    spread: float = math.nan
    message: str = ""
    max_error: float = math.nan
    build_seconds: float = math.nan
    run_seconds: float = math.nan
    rotation_bytes: int = 0
    host: Mapping[str, Any] = field(default_factory=dict)
    sketch: str = ""
    time: float = 0.0
    order: int = 0
    provenance: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)
    schema: str = SCHEMA
    place: Place | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(
        cls,
        result: TrialResult,
        *,
        time: float,
        sketch: str = "",
        order: int = 0,
        provenance: str = "",
        host: Mapping[str, Any] | None = None,
    ) -> Record:
        """Record of a result; the caller adds what a pool cannot know, and `host` for pools on this machine."""
        trial = result.trial
        shared = {name: getattr(result, name) for name in _RESULT_FIELDS}
        shared |= {name: getattr(trial, name) for name in _TRIAL_FIELDS}
        return cls(
            **shared,
            trace=tuple(trial.trace),
            host=dict(result.host or host or {}),
            sketch=sketch,
            time=time,
            order=order,
            provenance=provenance,
        )

    @classmethod
    def at(cls, place: Place) -> Record:
        """The record that stands at `place`.

        Raises:
            RecordError: there is none any more.
        """
        line = place.reader.line_at(place.offset)
        return replace(cls.from_line(line, f"{place.reader.name}:{place.line}"), place=place)

    @property
    def ok(self) -> bool:
        """Whether the trial was measured and its output right."""
        return self.error is ErrorClass.ok

    @property
    def min_seconds(self) -> float:
        """Fastest sample; NaN on failure."""
        return min(self.latencies, default=math.nan)

    @property
    def score(self) -> float:
        """What the search thought of the trial before it was measured, `score=` in the provenance; NaN if unknown.

        Higher is better. Scores compare within a round: between rounds the model learns.
        """
        found = _SCORE.search(self.provenance)
        return float(found[1]) if found else math.nan

    def to_trial(self, **changes: Any) -> Trial:
        """Trial that measures the same candidate again; `changes` are `Trial` fields to set."""
        same = {name: getattr(self, name) for name in (*_TRIAL_FIELDS, "trace")}
        return Trial(**{**same, **changes})

    def to_line(self) -> bytes:
        """One JSON line, newline included; NaN is written as null."""
        data = {name: getattr(self, name) for name in _READERS if name != "metrics" or self.metrics}
        return orjson.dumps(data, option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_SORT_KEYS | orjson.OPT_SERIALIZE_NUMPY)

    @classmethod
    def from_line(cls, line: bytes | str, where: str = "record") -> Record:
        """Reads one line strictly.

        Args:
            line: the JSON text.
            where: `file:line`, for messages.

        Raises:
            RecordError: another schema, a missing, unknown or wrongly typed field, or no JSON at all.
        """
        try:
            data = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise RecordError(
                f"{where}: a record must be one line of JSON, but got {readers.short(line)} ({error})"
            ) from None
        if not isinstance(data, dict):
            raise RecordError(f"{where}: a record must be a JSON object, but got {readers.short(line)}")
        if data.get("schema") != SCHEMA:
            raise RecordError(f"{where}: `schema` must be {SCHEMA!r}, but got schema={data.get('schema')!r}")
        for name in sorted(set(data) ^ set(_READERS) - ({"metrics"} - set(data))):
            state = "missing" if name in _READERS else "unknown"
            raise RecordError(f"{where}: a record must have the fields of {SCHEMA}, but `{name}` is {state}")
        return cls(**{name: readers.read(_READERS[name], name, value, where) for name, value in data.items()})


_TRIAL_FIELDS = ("workload", "workload_key", "algorithm", "trace_key", "target", "threads", "cache", "seed")
_RESULT_FIELDS = (
    "latencies",
    "seconds",
    "error",
    "message",
    "build_seconds",
    "run_seconds",
    "spread",
    "max_error",
    "rotation_bytes",
    "metrics",
)

_READERS: dict[str, Callable[[Any], Any]] = {
    "schema": readers.text,
    "workload": readers.mapping,
    "workload_key": readers.text,
    "algorithm": readers.text,
    "trace": readers.steps,
    "trace_key": readers.text,
    "target": readers.text,
    "threads": readers.integer,
    "cache": readers.text,
    "rotation_bytes": readers.integer,
    "latencies": readers.numbers,
    "seconds": readers.measured,
    "spread": readers.measured,
    "error": readers.error_class,
    "message": readers.text,
    "max_error": readers.measured,
    "build_seconds": readers.measured,
    "run_seconds": readers.measured,
    "host": readers.mapping,
    "seed": readers.integer,
    "sketch": readers.text,
    "time": readers.number,
    "order": readers.integer,
    "provenance": readers.text,
    "metrics": readers.mapping,
}
