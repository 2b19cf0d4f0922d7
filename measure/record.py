"""One measurement as one JSON line: trial, outcome and provenance."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, fields, replace
from hashlib import sha256
from typing import Any, NamedTuple

import orjson

from measure import bounds, schema1, typed
from measure.errors import BadRecordError, OutcomeError, RecordError
from measure.journal import LineReader
from measure.outcome import Outcome
from measure.pool import MeasuredTrial, Trial, TrialResult
from measure.provenance import Provenance
from measure.typed import short

SCHEMA = "autotune.record/2"
"""Name and version of the line format; any change of a field's meaning requires a new version."""

HEAD = b'{"outcome":'
"""Beginning of every line written by this version: fields are sorted by name."""

_HEADS = (HEAD, schema1.HEAD)
_SCHEMAS = (SCHEMA, schema1.SCHEMA)
_SORT_OPTIONS = orjson.OPT_SORT_KEYS | orjson.OPT_SERIALIZE_NUMPY


class LinePosition(NamedTuple):
    """Position of a record in a file."""

    reader: LineReader
    offset: int  # bytes
    line: int  # from 1


@dataclass(frozen=True)
class Record(MeasuredTrial):
    """One measured trial, with everything needed to repeat it and to compare it.

    Attributes:
        trial: the measured trial; records do not hold time limits and the latency to beat.
        outcome: outcome of the trial.
        provenance: origin of the trial, and time of its result.
        position: position in a file, if it has one; not part of the record.

    Raises:
        OutcomeError: the seed is negative.
    """

    trial: Trial
    outcome: Outcome
    provenance: Provenance = field(default_factory=Provenance)
    position: LinePosition | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.trial.seed < 0:
            raise OutcomeError(f"`seed` must be at least 0, but got seed={self.trial.seed}")

    @classmethod
    def of(cls, result: TrialResult, provenance: Provenance, host: Mapping[str, Any] | None = None) -> Record:
        """Makes a record of a result and its provenance; `host` describes this machine, if the pool measures here."""
        outcome = result.outcome
        return cls(result.trial, outcome if outcome.host else replace(outcome, host=dict(host or {})), provenance)

    @classmethod
    def at(cls, position: LinePosition) -> Record:
        """Reads the record at a position.

        Raises:
            RecordError: the file has no such record there any more.
        """
        line = position.reader.line_at(position.offset)
        return replace(cls.from_line(line, f"{position.reader.name}:{position.line}", checked=True), position=position)

    def to_trial(self, **changes: Any) -> Trial:
        """Makes a trial that measures the same candidate again; `changes` are `Trial` fields to set."""
        return Trial(**{**_trial_data(self.trial), **changes})

    def check(self) -> None:
        """Refuses a record whose parts contradict each other: its statements must be true wherever it is read.

        The schedule's key must match its steps. If the operator is known here, the workload's key must match, all steps
        must exist, and the latency must be possible on the target.

        Raises:
            OutcomeError: names the rule and the value.
        """
        trial = self.trial
        trace = [dict(step) for step in trial.trace]
        if sha256(orjson.dumps(trace, option=_SORT_OPTIONS)).hexdigest() != trial.trace_key:
            from search_space.schedule.trace import compute_key  # exact, also for rare characters and numbers

            if (right := compute_key(trace)) != trial.trace_key:
                raise OutcomeError(f"`trace_key` must be that of the trace, {right}, but got {trial.trace_key!r:.80}")
        if (expected := bounds.get_bounds(trial.workload)) is None:
            return
        if expected.key != trial.workload_key:
            raise OutcomeError(
                f"`workload_key` must be that of the workload, {expected.key:.80}, but got {trial.workload_key!r:.80}"
            )
        from search_space.schedule.errors import ScheduleError
        from search_space.schedule.steps import check_step

        try:
            for step in trace:
                check_step(step)
        except ScheduleError as error:
            raise OutcomeError(f"`trace` must be a schedule, but {error}") from None
        if self.ok:
            bounds.check_possible(trial.workload, trial.target, trial.threads, self.seconds)

    def to_line(self) -> bytes:
        """Formats the record as one JSON line, newline included; NaN is written as null."""
        outcome = {name: getattr(self.outcome, name) for name in _OUTCOME}
        if not self.metrics:
            del outcome["metrics"]
        data = {
            "schema": SCHEMA,
            "trial": _trial_data(self.trial),
            "outcome": outcome,
            "provenance": self.provenance.to_json(),
        }
        return orjson.dumps(data, option=orjson.OPT_APPEND_NEWLINE | _SORT_OPTIONS)

    @classmethod
    def from_line(cls, line: bytes | str, where: str = "record", checked: bool = False) -> Record:
        """Reads one line of either schema strictly.

        Args:
            line: the JSON text.
            where: `file:line`, for messages.
            checked: whether the line was checked before, so that `check` is skipped.

        Raises:
            BadRecordError: a record of these schemas is damaged or cannot be true. A field is missing, unknown or of
                the wrong type, or a value is impossible, see `check`.
            RecordError: the line is not a record.
        """
        data = _document(line, where)
        try:
            record = _read(data)
            if not checked:
                record.check()
        except ValueError as error:
            raise BadRecordError(f"{where}: {error}") from None
        return record


def is_whole(line: bytes) -> bool:
    """Tells whether an unterminated last line is complete (True), or the beginning of a record of ours (False).

    Raises:
        RecordError: it is neither.
    """
    try:
        _document(line, "the last line")
    except BadRecordError:  # damaged; a torn write leaves only a line's beginning
        return not _begins(line)
    return True


def _begins(line: bytes) -> bool:
    """Tells whether a line, or its part that was written, begins as records do."""
    return any(line.startswith(head) or head.startswith(line) for head in _HEADS)


def _document(line: bytes | str, where: str) -> dict[str, Any]:
    """Parses a line that claims to be a record.

    Raises:
        BadRecordError: the line is not JSON, but was meant to be a record.
        RecordError: the line is something else.
    """
    try:
        data = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        text = line if isinstance(line, bytes) else line.encode(errors="replace")
        meant = text and (_begins(text) or any(schema.encode() in text for schema in _SCHEMAS))
        raise (BadRecordError if meant else RecordError)(
            f"{where}: a record must be one line of JSON, but got {short(line)} ({error})"
        ) from None
    if not isinstance(data, dict):
        raise RecordError(f"{where}: a record must be a JSON object, but got {short(line)}")
    if data.get("schema") not in _SCHEMAS:
        found = short(repr(data.get("schema")))
        raise RecordError(f"{where}: `schema` must be {' or '.join(map(repr, _SCHEMAS))}, but got schema={found}")
    return data


def _read(data: dict[str, Any]) -> Record:
    """Makes a record of a line's data.

    Raises:
        ValueError: the data is not a record; names the rule and the value.
    """
    if data["schema"] == schema1.SCHEMA:
        _check_names(data, _FLAT, schema1.SCHEMA, optional={"metrics"})
        data = schema1.parts(data, _TRIAL, _OUTCOME)
    else:
        _check_names(data, frozenset({"schema", "trial", "outcome", "provenance"}))
        for name in ("trial", "outcome", "provenance"):
            if not isinstance(data[name], dict):
                raise OutcomeError(f"`{name}` must be an object, but got {name}={short(repr(data[name]))}")
        _check_names(data["trial"], _TRIAL)
        _check_names(data["outcome"], _OUTCOME, optional={"metrics"})
        _check_names(data["provenance"], _PROVENANCE, optional=_PROVENANCE)
    trial = typed.read(Trial, data["trial"])
    for name in ("workload_key", "trace_key"):
        if not trial[name]:
            raise OutcomeError(f"`{name}` must not be empty, but got {name}={trial[name]!r}")
    return Record(
        Trial(**trial),
        Outcome(**typed.read(Outcome, data["outcome"])),
        Provenance(**typed.read(Provenance, data["provenance"])),
    )


def _check_names(
    data: Mapping[str, Any], names: frozenset[str], schema: str = SCHEMA, optional: AbstractSet[str] = frozenset()
) -> None:
    """Refuses data whose fields are not exactly `names`, of which those in `optional` may be missing."""
    if data.keys() == names:
        return
    for name in sorted(data.keys() ^ names - (optional - data.keys())):
        state = "missing" if name in names else "unknown"
        raise OutcomeError(f"a record must have the fields of {schema}, but `{name:.60}` is {state}")


def _trial_data(trial: Trial) -> dict[str, Any]:
    return {name: getattr(trial, name) for name in _TRIAL}


_TRIAL = frozenset(item.name for item in fields(Trial) if item.compare)
_OUTCOME = frozenset(item.name for item in fields(Outcome))
_PROVENANCE = frozenset(item.name for item in fields(Provenance))
_FLAT = _TRIAL | _OUTCOME | {"schema", "provenance", "sketch", "order", "time"}
