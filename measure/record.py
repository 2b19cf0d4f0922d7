"""One measurement as one JSON line: what was tried, where, how, and what came of it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, NamedTuple, get_args

import orjson

from measure import bounds, outcome, readers
from measure.errors import BadRecordError, ErrorClass, OutcomeError, RecordError
from measure.journal import LineReader
from measure.pool import Cache, Trial, TrialResult

SCHEMA = "autotune.record/1"
"""Name and version of the line format; a change of any field's meaning is a new version."""

HEAD = b'{"algorithm":'
"""How every line begins that was written here."""

_SORTED = orjson.OPT_SORT_KEYS | orjson.OPT_SERIALIZE_NUMPY
_LATEST = 1e11  # Unix seconds; no calendar goes further
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

    Raises:
        OutcomeError: what no measurement gives, see `measure.outcome`, or a field out of its range.
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

    def __post_init__(self) -> None:
        outcome.check(self)
        for name, least in _LEAST.items():
            if getattr(self, name) < least:
                raise OutcomeError(f"`{name}` must be at least {least}, but got {name}={getattr(self, name)}")
        if not 0 <= self.time < _LATEST:
            raise OutcomeError(f"`time` must be Unix seconds, but got time={self.time}")
        if self.cache not in _CACHES:
            raise OutcomeError(f"`cache` must be one of {', '.join(_CACHES)}, but got cache={self.cache!r:.60}")
        if len(self.provenance) > outcome.MOST_TEXT:
            raise OutcomeError(
                f"`provenance` must have at most {outcome.MOST_TEXT} characters, but got {len(self.provenance)}"
            )

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
        return replace(cls.from_line(line, f"{place.reader.name}:{place.line}", known=True), place=place)

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

    def check(self) -> None:
        """Refuses a record whose parts contradict each other: what it says must be true wherever it is read.

        The schedule has the key that is said to be its own and, where the operator is known here, the workload has,
        too, every step is one that there is, and no machine is faster than any machine can be.

        Raises:
            OutcomeError: names the rule and the value.
        """
        trace = [dict(step) for step in self.trace]
        if sha256(orjson.dumps(trace, option=_SORTED)).hexdigest() != self.trace_key:
            from search_space.schedule.trace import key_of  # the same but for rare characters and numbers

            if (right := key_of(trace)) != self.trace_key:
                raise OutcomeError(f"`trace_key` must be that of the trace, {right}, but got {self.trace_key!r:.80}")
        if (known := bounds.known(self.workload)) is None:
            return
        if known.key != self.workload_key:
            raise OutcomeError(
                f"`workload_key` must be that of the workload, {known.key:.80}, but got {self.workload_key!r:.80}"
            )
        from search_space.schedule.errors import ScheduleError
        from search_space.schedule.steps import check_step

        try:
            for step in trace:
                check_step(step)
        except ScheduleError as error:
            raise OutcomeError(f"`trace` must be a schedule, but {error}") from None
        if self.ok:
            bounds.check_possible(self.workload, self.target, self.threads, self.seconds)

    def to_line(self) -> bytes:
        """One JSON line, newline included; NaN is written as null."""
        data = {name: getattr(self, name) for name in _READERS if name != "metrics" or self.metrics}
        return orjson.dumps(data, option=orjson.OPT_APPEND_NEWLINE | _SORTED)

    @classmethod
    def from_line(cls, line: bytes | str, where: str = "record", known: bool = False) -> Record:
        """Reads one line strictly.

        Args:
            line: the JSON text.
            where: `file:line`, for messages.
            known: that its parts do not contradict each other, see `check`.

        Raises:
            BadRecordError: a record of this schema that is damaged or cannot be true: a missing, unknown or wrongly
                typed field, or values that no measurement gives, see `check`.
            RecordError: something else than a record of this schema.
        """
        data = _document(line, where)
        for name in sorted(set(data) ^ set(_READERS) - ({"metrics"} - set(data))):
            state = "missing" if name in _READERS else "unknown"
            raise BadRecordError(f"{where}: a record must have the fields of {SCHEMA}, but `{name:.60}` is {state}")
        try:
            record = cls(**{name: readers.read(_READERS[name], name, value) for name, value in data.items()})
            if not known:
                record.check()
        except OutcomeError as error:
            raise BadRecordError(f"{where}: {error}") from None
        return record


def is_whole(line: bytes) -> bool:
    """Whether the last line of a file has lost its newline alone; else it is the beginning of a record that we wrote.

    Raises:
        RecordError: it is neither.
    """
    try:
        _document(line, "the last line")
    except BadRecordError:  # damaged; of what we begin to write, only the beginning is there
        return not (line.startswith(HEAD) or HEAD.startswith(line))
    return True


def _document(line: bytes | str, where: str) -> dict[str, Any]:
    """What a line holds, which says that it is a record of this schema.

    Raises:
        BadRecordError: it is no JSON, but was meant to be a record.
        RecordError: it is something else.
    """
    try:
        data = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        text = line if isinstance(line, bytes) else line.encode(errors="replace")
        meant = text and (text.startswith(HEAD) or HEAD.startswith(text) or SCHEMA.encode() in text)
        raise (BadRecordError if meant else RecordError)(
            f"{where}: a record must be one line of JSON, but got {readers.short(line)} ({error})"
        ) from None
    if not isinstance(data, dict):
        raise RecordError(f"{where}: a record must be a JSON object, but got {readers.short(line)}")
    if data.get("schema") != SCHEMA:
        found = readers.short(repr(data.get("schema")))
        raise RecordError(f"{where}: `schema` must be {SCHEMA!r}, but got schema={found}")
    return data


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
_LEAST = {"threads": 1, "seed": 0, "order": 0}
_CACHES = get_args(Cache)

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
    "metrics": readers.figures,
}
