"""The records file: append, query, torn and corrupt lines, merge."""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import re
import subprocess
import sys

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from measure.database import Database, merge
from measure.errors import ErrorClass, FullError, RecordError
from measure.outcome import Outcome
from measure.pool import Trial, TrialResult
from measure.provenance import Provenance
from measure.record import HEAD, Record
from search_space import workloads
from search_space.schedule.trace import compute_key
from tests.measure.helpers import change_record, edit_data, record, trial


@pytest.fixture
def path(tmp_path):
    return tmp_path / "records.jsonl"


def fill(path, *records):
    with Database(path) as database:
        for item in records:
            database.append(item)


def failure(step=9):
    return Record.of(TrialResult(trial(step_number=step), 0, Outcome(error=ErrorClass.crash)), Provenance(time=0.0))


def test_an_empty_file_answers(path):
    with Database(path) as database:
        assert len(database) == 0
        assert list(database) == []
        database.check_compatible("cpu")
    assert path.read_bytes() == b""


def test_records_come_back_in_order_after_reopening(path):
    written = [record(step * 1e-3, step=step) for step in (3, 1, 2)]
    fill(path, *written[:2])
    fill(path, written[2])
    with Database(path, readonly=True) as database:
        assert list(database.records()) == written
        assert list(database.records("other")) == []
        assert list(database.records(target="cuda")) == []
        assert len(database) == 3


def test_an_append_is_visible_at_once(path):
    with Database(path) as database, Database(path, readonly=True):
        database.append(record(1e-3))
        assert [each.seconds for each in database.records(record().workload_key, "cpu")] == [1e-3]
        assert path.read_bytes().endswith(b"\n")
        with Database(path, readonly=True) as other:
            assert len(other) == 1


@pytest.mark.parametrize("cut", [1, 30, 200])
def test_a_torn_last_line_is_cut_off_and_reported(path, cut, caplog):
    fill(path, record(step=1), record(step=2))
    whole = path.read_bytes()
    lost = record(step=3).to_line()
    path.write_bytes(whole + lost[: -cut - 1])
    with caplog.at_level(logging.WARNING), Database(path) as database:
        assert "the last line was torn" in database.last_repair and "cut off" in database.last_repair
        assert database.last_repair in caplog.text
        assert len(database) == 2
        database.append(record(step=4))
    with Database(path, readonly=True) as database:
        assert [item.provenance.order for item in database] == [1, 2, 4]
        assert database.last_repair is None


def test_a_file_that_is_one_torn_line_becomes_empty(path):
    path.write_bytes(record().to_line()[:9])
    with Database(path) as database:
        assert len(database) == 0
    assert path.read_bytes() == b""


def test_a_last_line_that_lost_only_its_newline_is_kept(path):
    fill(path, record(step=1))
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    with Database(path) as database:
        assert len(database) == 1 and "put back" in database.last_repair
        database.append(record(step=2))
    with Database(path, readonly=True) as database:
        assert [item.provenance.order for item in database] == [1, 2]


def test_a_reader_leaves_a_torn_line_alone(path):
    fill(path, record(step=1))
    path.write_bytes(path.read_bytes() + b'{"outcome":"torn')
    before = path.read_bytes()
    with Database(path, readonly=True) as database:
        assert len(database) == 1 and "left out" in database.last_repair
        with pytest.raises(RecordError, match="opened for writing"):
            database.append(record())
    assert path.read_bytes() == before


def test_a_corrupt_line_in_the_middle_is_named_and_the_file_untouched(path):
    lines = [record(step=step).to_line() for step in range(3)]
    path.write_bytes(lines[0] + b"garbage\n" + lines[2])
    before = path.read_bytes()
    with pytest.raises(RecordError, match=r"records\.jsonl:2: a record must be one line of JSON, but got garbage"):
        Database(path)
    assert path.read_bytes() == before


def test_another_schema_is_refused_with_its_line(path):
    path.write_bytes(record().to_line() + record().to_line().replace(b"record/2", b"record/9"))
    with pytest.raises(
        RecordError, match=r"records\.jsonl:2: `schema` must be 'autotune.record/2'.*'autotune.record/9'"
    ):
        Database(path)


@pytest.mark.parametrize(
    "content",
    [
        b"one\ntwo\nthe last line has no end",
        b"the only line has no end",
        b"{}",
        b'{"time": 3, "values": [',
        b"[1, 2]\n[3",
        b"\0" * 100,
        b"\x7fELF\n\x01\x02",
        record(step=1).to_line() + b"a note of my own",
        record(step=1).to_line() + record().to_line().replace(b"record/2", b"record/7").rstrip(),
    ],
)
@pytest.mark.parametrize("readonly", [False, True])
def test_a_file_that_is_no_records_file_keeps_every_byte(path, content, readonly):
    path.write_bytes(content)
    with pytest.raises(RecordError, match=r"records\.jsonl:.* (must be one line of JSON|must be a JSON object|schema)"):
        Database(path, readonly)
    assert path.read_bytes() == content


def test_what_somebody_else_adds_is_not_cut_off_by_the_next_append(path):
    with Database(path) as database:
        database.append(record(step=1))
        with open(path, "ab") as other:
            other.write(b"a note of my own")
        before = path.read_bytes()
        with pytest.raises(RecordError, match="the last line: a record must be one line of JSON, but got a note"):
            database.append(record(step=2))
        assert path.read_bytes() == before


def test_what_is_no_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(RecordError, match="`records` must be a regular file, but got .*pipe"):
        Database(tmp_path / "pipe")


def real(step=0, **changes):
    """Line of a record of a real workload, with other fields."""
    workload = workloads.matmul(m=64, n=64, k=64)
    steps = [{"step": "fuse", "stage": "matmul", "axes": ["i", "j"]}]
    tried = Trial(workload.to_json(), "direct", steps, workload_key=workload.key, trace_key=compute_key(steps))
    result = TrialResult(tried, 0, Outcome((1e-3,), 1e-3, spread=0.0))
    true = orjson.loads(Record.of(result, Provenance(order=step)).to_line())
    return orjson.dumps(edit_data(true, changes), option=orjson.OPT_SORT_KEYS) + b"\n"


LATENCY = r"`latencies` must be finite and at least 1e-10 seconds"
OTHER = [{"step": "twist", "stage": "matmul"}]
TYPED_TRACE = [{"step": "fuse", "stage": "matmul", "axes": 3}]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"seconds": -1.0}, "`seconds` must be the median of `latencies`, 0.001, but got seconds=-1"),
        ({"seconds": 0}, "`seconds` must be the median"),
        ({"seconds": None}, "`seconds` must be the median"),
        ({"seconds": -1.0, "latencies": [-1.0]}, LATENCY),
        ({"seconds": 0, "latencies": [0]}, LATENCY),
        ({"seconds": 1e-15, "latencies": [1e-15]}, LATENCY),
        ({"seconds": 1e-9, "latencies": [1e-9]}, "`seconds` must be at least 5.24e-09 for this workload"),
        ({"error": "crash"}, "`latencies` and `seconds` must be empty where error=crash"),
        ({"trace_key": "0" * 64}, "`trace_key` must be that of the trace, [0-9a-f]{64}, but got '0000"),
        (
            {"trace": OTHER, "trace_key": compute_key(OTHER)},
            "`trace` must be a schedule, but `step` must be one of split",
        ),
        (
            {"trace": TYPED_TRACE, "trace_key": compute_key(TYPED_TRACE)},
            "`axes` of a fuse step must be a list of names, but got axes=3",
        ),
        ({"workload_key": "matmul(m=1)"}, r"`workload_key` must be that of the workload, matmul\(m=64"),
        ({"workload": {"operator": "matmul", "args": {"m": 64}}}, "`workload` must be one of its operator"),
        ({"threads": 0}, "`threads` must be from 1 to 1024, but got threads=0"),
        ({"cache": "cold"}, "`cache` must be one of"),
        ({"more": 1}, "`more` is unknown"),
        ({"rotation_bytes": 2**63}, "`rotation_bytes` must be an integer of 64 bits"),
    ],
)
def test_a_record_that_cannot_be_true_is_left_out_and_those_beside_it_are_used(path, changes, sentence, caplog):
    path.write_bytes(real(1) + real(2, **changes) + b"\n" + real(3))
    before = path.read_bytes()
    with Database(path) as database:
        assert [item.provenance.order for item in database] == [1, 3]
        (told,) = database.refusals
        assert re.match(rf"{re.escape(str(path))}:2: .*{sentence}", told), told
        assert database.notes == [f"{told}; the record is left out"] and told in caplog.text
        assert path.read_bytes() == before
        assert database.append(record(step=4)).position.line == 5
    assert path.read_bytes() == before + record(step=4).to_line()
    with Database(path, readonly=True) as database:
        assert [item.provenance.order for item in database] == [1, 3, 4] and len(database.refusals) == 1


def test_a_damaged_record_is_left_out_as_well_and_many_are_counted(path):
    torn = [real(step)[: 30 + step] + b"\n" for step in range(5)]
    path.write_bytes(real(1) + b"".join(torn) + real(2))
    with Database(path) as database:
        assert [item.provenance.order for item in database] == [1, 2] and len(database.refusals) == 5
        assert len(database.notes) == 4 and database.notes[-1] == "2 more records are left out as these are"


def test_a_last_line_that_is_whole_but_not_true_is_no_torn_one(path):
    path.write_bytes(real(1) + real(2, seconds=-1.0).rstrip())
    whole = path.read_bytes()
    with Database(path, readonly=True) as database:
        assert len(database) == 1 and len(database.refusals) == 1
    assert path.read_bytes() == whole
    with Database(path) as database:
        assert len(database) == 1 and "put back" in database.last_repair
        assert database.append(record(step=3)).position.line == 3
    assert path.read_bytes() == whole + b"\n" + record(step=3).to_line()


def test_what_is_not_true_is_not_written(path):
    with Database(path) as database:
        database.append(record(step=1))
        with pytest.raises(RecordError, match="`records` must be true to be kept in .*`trace_key` must be that"):
            database.append(change_record(record(step=2), trace_key="x"))
        assert len(database) == 1
    assert path.read_bytes() == record(step=1).to_line()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
TRUE = orjson.loads(real())
NAMES = sorted({*TRUE, *TRUE["trial"], *TRUE["outcome"], *TRUE["provenance"]})
FIELDS = st.dictionaries(st.sampled_from(NAMES), JSON, max_size=3)
CHANGED_LINES = FIELDS.map(lambda fields: json.dumps(edit_data(TRUE, fields)).encode())
ANY = st.binary(max_size=60) | CHANGED_LINES | JSON.map(lambda data: json.dumps(data).encode())
PIECES = ANY | st.just(real().rstrip()) | st.integers(1, 200).map(lambda n: real()[:n])


@settings(deadline=None, max_examples=80)
@given(st.lists(PIECES, max_size=4), st.booleans())
def test_any_file_keeps_its_bytes_and_gives_true_records_or_a_sentence(tmp_path_factory, pieces, ends_in_newline):
    """A torn record at the end, which nobody was ever told of, may be lost."""
    path = tmp_path_factory.mktemp("any") / "records.jsonl"
    content = b"\n".join(pieces) + b"\n" * ends_in_newline
    path.write_bytes(content)
    try:
        with Database(path) as database:
            assert all(item.seconds > 0 and item.to_trial() for item in database if item.ok)
            database.append(record())
            found = len(database)
    except RecordError as error:
        assert "records.jsonl" in str(error) and path.read_bytes() == content
        return
    kept = path.read_bytes().removesuffix(record().to_line())
    lost = content.removeprefix(kept.rstrip(b"\n")).strip(b"\n")
    assert kept in (content, content + b"\n") or HEAD.startswith(lost[: len(HEAD)])
    with Database(path, readonly=True) as database:
        assert len(database) == found and database.last_repair is None


def test_resuming_with_another_target_is_refused_but_reading_is_not(path):
    fill(path, record(), record(step=1, target="cuda"))
    with Database(path) as database:
        assert database.targets == ("cpu", "cuda")
        with pytest.raises(RecordError, match=r"jsonl:2: `target` must be .*'cpu', but got target='cuda'"):
            database.check_compatible("cpu")


def test_two_writers_take_turns_and_know_their_lines(path):
    with Database(path) as first, Database(path) as second:
        first.append(record(step=1))
        second.append(record(step=2))
        second.append(record(step=3))
        first.append(record(step=4))
        assert [item.provenance.order for item in first] == [1, 4]  # what it had on opening, and its own
        assert [item.position.line for item in first] == [1, 4]
        assert [item.position.line for item in second] == [2, 3]
    with Database(path, readonly=True) as database:
        assert [item.provenance.order for item in database] == [1, 2, 3, 4]


def test_a_line_that_another_writer_tore_is_healed_by_the_next_append(path, caplog):
    with Database(path) as database:
        database.append(record(step=1))
        with open(path, "ab") as dying:
            dying.write(record(step=2).to_line()[:-20])
        with Database(path, readonly=True) as reader:
            assert len(reader) == 1 and "left out" in reader.last_repair
        assert database.last_repair is None
        database.append(record(step=3))
        assert (
            "torn" in database.last_repair and "cut off" in database.last_repair and database.last_repair in caplog.text
        )
        with open(path, "ab") as dying:
            dying.write(record(step=4).to_line()[:-1])
        database.append(record(step=5))
        assert "put back" in database.last_repair
    with Database(path, readonly=True) as database:
        assert [item.provenance.order for item in database] == [1, 3, 4, 5] and database.last_repair is None


def test_a_file_that_stays_locked_is_reported(path, monkeypatch):
    monkeypatch.setattr("measure.journal.LOCK_TIMEOUT", 0.05)
    with Database(path) as database, open(path) as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(RecordError, match=r"`records` must be free to write within 0.05 seconds, but got .*jsonl"):
            database.append(record())
        with pytest.raises(RecordError, match="another process keeps locked"):
            Database(path)
        fcntl.flock(other, fcntl.LOCK_UN)
        database.append(record())
        assert len(database) == 1


@pytest.mark.parametrize("room", [10, 0])
def test_a_full_disk_leaves_the_file_as_it_was(path, monkeypatch, room):
    write, left = os.write, []

    def filling(descriptor, data):
        if not left:
            return write(descriptor, data)
        size = left.pop(0)
        if not size:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, bytes(data)[:size])

    monkeypatch.setattr("measure.journal.os.write", filling)
    with Database(path) as database:
        database.append(record(step=1))
        before = path.read_bytes()
        left[:] = [room, 0] if room else [0]
        with pytest.raises(
            FullError, match=r"must have room for every record, but writing \d+ bytes to .*No space left"
        ):
            database.append(record(step=2))
        assert path.read_bytes() == before and len(database) == 1
        database.append(record(step=3))
        left[:] = [10]  # in two parts, which is slow but no failure
        database.append(record(step=4))
    with Database(path, readonly=True) as database:
        assert [item.provenance.order for item in database] == [1, 3, 4] and database.last_repair is None


def test_records_that_come_together_are_synced_once(path, monkeypatch):
    synced, sync = [], os.fsync
    monkeypatch.setattr("measure.journal.os.fsync", lambda descriptor: synced.append(sync(descriptor)))
    with Database(path) as database, Database(path) as other:
        assert database.extend([]) == [] and not synced
        placed = database.extend([record(step=step) for step in range(5)])
        assert len(synced) == 1 and [item.provenance.order for item in placed] == [0, 1, 2, 3, 4]
        other.append(record(step=5))
        placed += database.extend([record(step=6), record(step=7)])
        assert [item.position.line for item in placed] == [1, 2, 3, 4, 5, 7, 8]
        assert list(database) == placed and [item.position for item in database] == [item.position for item in placed]
    assert path.read_bytes() == b"".join(record(step=step).to_line() for step in range(8))


def test_a_disk_that_is_full_after_some_of_the_records_keeps_those(path, monkeypatch):
    write = os.write
    room = 2 * len(record(step=1).to_line()) + 10

    def filling(descriptor, data):
        free = room - path.stat().st_size
        if not free:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, bytes(data)[:free])

    monkeypatch.setattr("measure.journal.os.write", filling)
    with Database(path) as database:
        with pytest.raises(FullError, match="must have room for every record"):
            database.extend([record(step=step) for step in (1, 2, 3)])
        assert [item.provenance.order for item in database] == [1, 2]
    assert path.read_bytes() == record(step=1).to_line() + record(step=2).to_line()


WRITER = """
import sys
from measure.database import Database
from tests.measure.helpers import record

with Database(sys.argv[1]) as database:
    for step in range(150):
        database.append(record(step=step, target=sys.argv[2]))
"""


def test_writers_and_readers_of_several_processes_do_not_disturb_each_other(path):
    """Three processes append while others begin lines that they never finish, and a reader looks all the time."""
    path.touch()
    names = ["a", "b", "c"]
    running = [subprocess.Popen([sys.executable, "-c", WRITER, str(path), name]) for name in names]
    torn = seen = 0
    while any(process.poll() is None for process in running):
        with Database(path, readonly=True) as database:
            assert len(database) >= seen and (database.last_repair is None or "left out" in database.last_repair)
            seen = len(database)
        with open(path, "ab", buffering=0) as dying:
            fcntl.flock(dying, fcntl.LOCK_EX)
            dying.write(b'{"algorithm":')  # and dies
        torn += 1
    assert [process.returncode for process in running] == [0, 0, 0] and torn > 3 and seen > 0
    with Database(path) as database:
        for name in names:
            assert [item.provenance.order for item in database.records(target=name)] == list(range(150))
        assert len(database) == 450


def test_an_unwritable_place_is_one_sentence(tmp_path):
    with pytest.raises(RecordError, match="`records` must be a writable file, but got .*/none/r.jsonl: No such file"):
        Database(tmp_path / "none" / "r.jsonl")
    with pytest.raises(RecordError, match="`records` must be a readable file"):
        Database(tmp_path / "r.jsonl", readonly=True)
    with pytest.raises(RecordError, match="`records` must be a writable file.*directory"):
        Database(tmp_path)


def test_merging_keeps_each_measurement_once(tmp_path):
    first, second, into = (tmp_path / name for name in ("a.jsonl", "b.jsonl", "all.jsonl"))
    shared, same_candidate = record(1e-3, time=1.0), record(1.1e-3, time=2.0)
    fill(first, shared, record(2e-3, step=2))
    fill(second, shared, same_candidate, record(3e-3, target="cuda", step=3))
    assert merge([first, second], into) == 4
    assert merge([first, second], into) == 0
    with Database(into, readonly=True) as database:
        assert len(database) == 4
        assert [item.seconds for item in database.records(shared.workload_key, "cpu")] == [1e-3, 2e-3, 1.1e-3]


def test_a_bad_file_stops_a_merge_before_anything_is_added(tmp_path):
    fill(tmp_path / "a.jsonl", record())
    (tmp_path / "b.jsonl").write_bytes(b"garbage\n")
    with pytest.raises(RecordError, match=r"b\.jsonl:1"):
        merge([tmp_path / "a.jsonl", tmp_path / "b.jsonl"], tmp_path / "all.jsonl")
    assert not os.path.exists(tmp_path / "all.jsonl")


def test_a_long_record_is_read_whole(path):
    long = Record.of(TrialResult(trial(text="x" * 200_000), 0, Outcome((1.0,), 1.0, spread=0.0)), Provenance(time=0.0))
    fill(path, record(2.0, step=1), long, record(3.0, step=2))
    with Database(path, readonly=True) as database:
        assert list(database)[1].trial.trace[0]["text"] == "x" * 200_000
