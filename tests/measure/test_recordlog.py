"""The log of records against a plain list of them, in memory and over a file."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from measure.database import Database
from measure.errors import ErrorClass, RecordError
from measure.outcome import Outcome
from measure.pool import TrialResult
from measure.provenance import Provenance
from measure.record import Record
from measure.recordlog import RecordLog
from tests.measure.helpers import record, trial

latencies = st.lists(st.sampled_from([1e-3, 2e-3, 3e-3, math.nan]) | st.floats(1e-9, 1e3), max_size=12)


def make_record(index: int, seconds: float) -> Record:
    """A record; NaN makes a failure."""
    if math.isnan(seconds):
        failed = TrialResult(trial(step_number=index), 0, Outcome(error=ErrorClass.crash, message=f"failed {index}"))
        return Record.of(failed, Provenance(time=1.0, order=index))
    return record(seconds, step=index)


def same(left, right) -> bool:
    """Tells whether records are equal to the last byte of their lines."""
    return [item.to_line() for item in left] == [item.to_line() for item in right]


@settings(max_examples=60, deadline=None)
@given(latencies, st.lists(st.booleans(), min_size=12, max_size=12), st.integers(0, 14))
def test_a_log_says_what_a_list_would_say(tmp_path_factory, seconds, in_file, count):
    path = tmp_path_factory.mktemp("log") / "records.jsonl"
    plain = [make_record(place, value) for place, value in enumerate(seconds)]
    with Database(path) as database:
        log = RecordLog(database.append(one) if kept else one for one, kept in zip(plain, in_file, strict=False))
    # The database is closed: a log outlives it.
    assert len(log) == len(plain) and same(log, plain)
    assert same(log[2:], plain[2:]) and same(log[::-1], plain[::-1])
    assert log.seconds.tolist() == pytest.approx(seconds, nan_ok=True)
    assert log.errors == Counter(str(one.error) for one in plain)
    fastest = sorted((one for one in plain if one.ok), key=lambda one: one.seconds)
    assert same(log.fastest(count), fastest[:count])
    for place, one in enumerate(plain):
        assert (log[place].position is not None) == in_file[place]
        assert same([log[place - len(plain)]], [one])


def test_an_index_beyond_the_end_is_refused():
    with pytest.raises(IndexError):
        RecordLog([record()])[1]
    with pytest.raises(IndexError):
        RecordLog()[-1]


def test_a_copy_is_another_log():
    log = RecordLog([record(step=0)])
    other = log.copy()
    log.append(record(step=1))
    other.append(record(step=2))
    assert [one.provenance.order for one in log] == [0, 1] and [one.provenance.order for one in other] == [0, 2]
    assert log.errors["ok"] == other.errors["ok"] == 2


def test_records_of_several_files_are_told_apart(tmp_path):
    with Database(tmp_path / "a.jsonl") as first, Database(tmp_path / "b.jsonl") as second:
        log = RecordLog([first.append(record(step=1)), second.append(record(step=2)), first.append(record(step=3))])
        log.append(record(step=4))
    assert [one.provenance.order for one in log] == [1, 2, 3, 4]
    (tmp_path / "a.jsonl").rename(tmp_path / "moved.jsonl")
    assert [one.provenance.order for one in log] == [1, 2, 3, 4]


def test_a_record_knows_where_it_stands(tmp_path):
    path = tmp_path / "records.jsonl"
    with Database(path) as database:
        placed = [database.append(record(step=place)) for place in range(3)]
        assert [one.position.line for one in placed] == [1, 2, 3]
        assert [one.position for one in database] == [one.position for one in placed]
        assert placed[1] == record(step=1) and record().position is None
    lines = path.read_bytes().splitlines(keepends=True)
    assert b"place" not in lines[0] and placed[1].to_line() == lines[1]


def test_a_line_that_was_overwritten_is_named(tmp_path):
    path = tmp_path / "records.jsonl"
    with Database(path) as database:
        log = RecordLog([database.append(record(step=0)), database.append(record(step=1))])
    with path.open("r+b") as file:
        file.seek(log[1].position.offset)
        file.write(b"#")
    assert log[0].provenance.order == 0
    with pytest.raises(RecordError, match=r"records\.jsonl:2: a record must be one line of JSON, but got #"):
        log[1]


def test_a_record_takes_little_memory(tmp_path):
    """A real trace has some kilobytes of steps, all much alike."""
    rng = np.random.default_rng(0)
    log, sizes = RecordLog(), []
    for place in range(50):
        steps = [
            {"step": "split", "stage": "matmul", "axis": f"i{i}", "factors": rng.integers(1, 99, 3).tolist()}
            for i in range(40)
        ]
        key = rng.bytes(32).hex()
        result = TrialResult(replace(trial(), trace=steps, trace_key=key), place, Outcome((1e-3,), 1e-3, spread=0.0))
        sizes.append(len(Record.of(result, Provenance(time=1.0, order=place)).to_line()))
        log.append(Record.of(result, Provenance(time=1.0, order=place)))
    assert np.mean(sizes) > 2500 and np.mean([len(packed) for packed in log._packed_records[1:]]) < 700
