"""Records: one strict JSON line each."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import replace

import orjson
import pytest

from measure.errors import ErrorClass, RecordError
from measure.outcome import Outcome
from measure.pool import TrialResult
from measure.provenance import Kind, Provenance
from measure.record import SCHEMA, Record
from tests.measure.helpers import edit_data, record, trial


def test_a_line_gives_the_equal_record_back():
    original = record(2.5e-4, time=1.5, step=3)
    line = original.to_line()
    assert line.endswith(b"\n") and line.count(b"\n") == 1
    assert Record.from_line(line) == original


def test_what_was_not_measured_is_null_in_the_file_and_nan_in_memory():
    failed = TrialResult(trial(), 0, Outcome(error=ErrorClass.crash, message="the run process died (SIGSEGV)"))
    line = Record.of(failed, Provenance(time=1.0)).to_line()
    data = orjson.loads(line)
    found = data["outcome"]
    assert found["seconds"] is None and found["spread"] is None and found["run_seconds"] is None
    assert found["error"] == "crash" and found["latencies"] == [] and data["schema"] == SCHEMA
    again = Record.from_line(line)
    assert math.isnan(again.seconds) and not again.ok and again.message == failed.message


def test_metrics_are_kept_where_there_are_any():
    told = TrialResult(trial(), 0, Outcome((1e-3,), 1e-3, metrics={"cycles": 100_000, "share": 0.5}))
    line = Record.of(told, Provenance(time=0.0)).to_line()
    assert Record.from_line(line).metrics == {"cycles": 100_000, "share": 0.5}
    assert b"metrics" not in record(1e-3).to_line() and Record.from_line(record(1e-3).to_line()).metrics == {}
    with pytest.raises(RecordError, match="`metrics` must be an object of numbers, but got metrics=3"):
        Record.from_line(orjson.dumps(edit_data(orjson.loads(line), {"metrics": 3})))


def test_only_what_is_known_of_its_provenance_is_written():
    proposed = Provenance(Kind.search, "tpe", 0, 1.5e-7, (), True, "tile", 3, 2.0)
    given = replace(record(1e-3), provenance=proposed)
    assert Record.from_line(given.to_line()) == given
    assert orjson.loads(given.to_line())["provenance"] == {
        "kind": "search",
        "strategy": "tpe",
        "round": 0,
        "score": 1.5e-7,
        "choices": [],
        "transferred": True,
        "sketch": "tile",
        "order": 3,
        "time": 2.0,
    }
    assert orjson.loads(replace(given, provenance=Provenance()).to_line())["provenance"] == {}


def test_the_record_of_a_trial_makes_the_equal_trial():
    tried = trial(size=8, options={"threads": 2, "cache": "network", "seed": 5})
    kept = Record.from_line(Record.of(TrialResult(tried, 0, Outcome((1e-3,), 1e-3)), Provenance(time=0.0)).to_line())
    assert kept.to_trial().to_json() == tried.to_json() and kept.trial == tried
    assert kept.to_trial(best_seconds=1.0).best_seconds == 1.0


@pytest.mark.parametrize(
    ("field", "value", "complaint"),
    [
        (
            "schema",
            "autotune.record/3",
            r"runs\.jsonl:7: `schema` must be 'autotune.record/2' or 'autotune.record/1', but got schema='autotune.re",
        ),
        ("schema", None, "`schema` must be .* but got schema=None"),
        ("seconds", "fast", "`seconds` must be a number, but got seconds='fast'"),
        ("threads", 1.5, "`threads` must be an integer, but got threads=1.5"),
        ("threads", True, "`threads` must be an integer, but got threads=True"),
        ("error", "sad", "`error` must be one of ok, instantiation, .* but got error='sad'"),
        ("trace", {}, "`trace` must be a list of objects"),
        ("trace", [1], "`trace` must be an object|`trace` must be a list of objects"),
        ("latencies", ["x"], "`latencies` must be a number"),
        ("workload", "conv", "`workload` must be an object, but got workload='conv'"),
        ("message", 3, "`message` must be a string"),
        ("colour", "red", "fields of autotune.record/2, but `colour` is unknown"),
    ],
)
def test_a_wrong_field_is_named_with_rule_and_value(field, value, complaint):
    data = edit_data(orjson.loads(record().to_line()), {field: value})
    with pytest.raises(RecordError, match=complaint):
        Record.from_line(orjson.dumps(data), "runs.jsonl:7")


def test_a_missing_field_is_named():
    data = orjson.loads(record().to_line())
    del data["trial"]["seed"]
    with pytest.raises(RecordError, match="`seed` is missing"):
        Record.from_line(orjson.dumps(data))


@pytest.mark.parametrize("line", [b"", b"{", b"not json", b"[1]", b"\xff\x00"])
def test_what_is_no_json_object_is_refused(line):
    with pytest.raises(RecordError, match=r"^f:1: a record must be"):
        Record.from_line(line, "f:1")


def test_records_are_immutable():
    with pytest.raises(dataclasses.FrozenInstanceError):
        record().outcome.seconds = 1.0
