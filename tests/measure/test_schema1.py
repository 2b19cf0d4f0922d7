"""Lines of the first schema of records, as they were written, are read as they were."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path

import orjson
import pytest

from measure.database import Database
from measure.errors import OutcomeError, RecordError
from measure.provenance import Kind, Provenance
from measure.record import Record
from measure.schema1 import parse_provenance
from tests.measure.helpers import record

LINES = (Path(__file__).parent / "schema1.jsonl").read_bytes().splitlines()
PROVENANCES = [
    Provenance(Kind.search, "evolution", 0, 15.5812279, (8, 2, 3)),
    Provenance(Kind.search, "evolution", 0, 12.9496233, ()),
    Provenance(Kind.final),
    Provenance(Kind.search, "random", 0, 0.309115175, (24, 2, 1)),
    Provenance(Kind.search, "tpe", 12, -1.5e-07, (8, 2, 3), transferred=True),
    Provenance(Kind.retimed),
    Provenance(note="by hand"),
    Provenance(),
    Provenance(Kind.search, "random", 0, choices=(8, 2, 3)),
    Provenance(Kind.search, "annealing", 3, choices=()),
]


@pytest.mark.parametrize(("line", "provenance"), list(zip(LINES, PROVENANCES, strict=True)))
def test_every_value_is_found_again(line, provenance):
    data, read = orjson.loads(line), Record.from_line(line)
    assert data.pop("schema") == "autotune.record/1" and isinstance(data.pop("provenance"), str)
    flat = {**vars(read.trial), **vars(read.outcome), **vars(read.provenance)}
    for name, value in data.items():
        wanted = tuple(value) if name == "latencies" else value
        assert math.isnan(flat[name]) if wanted is None else flat[name] == wanted
    placed = {name: data[name] for name in ("sketch", "order", "time")}
    assert read.provenance.to_json() == {**provenance.to_json(), **{n: v for n, v in placed.items() if v}}


@pytest.mark.parametrize("line", LINES)
def test_it_is_written_in_todays_schema(line):
    read = Record.from_line(line)
    again = Record.from_line(read.to_line())
    assert b"autotune.record/2" in read.to_line()
    for part in ("trial", "outcome", "provenance"):
        one, other = asdict(getattr(read, part)), asdict(getattr(again, part))
        assert repr(one) == repr(other)  # NaN is not equal to itself


def test_a_file_may_hold_lines_of_both_and_a_torn_one_of_the_first(tmp_path):
    path = tmp_path / "records.jsonl"
    old = b"\n".join(LINES[:3]) + b"\n"
    path.write_bytes(old + LINES[3][:-40])
    with Database(path) as database:
        assert "was cut off" in database.last_repair and len(database) == 3
        database.append(record())
        assert min(each.seconds for each in database if each.ok) < 1e-3
    assert path.read_bytes() == old + record().to_line()
    path.write_bytes(old.rstrip())
    with Database(path) as database:
        assert "put back" in database.last_repair and len(database) == 3


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("seconds", "fast", "`seconds` must be a number, but got seconds='fast'"),
        ("threads", 1.5, "`threads` must be an integer, but got threads=1.5"),
        ("rotation_bytes", 2**63, "`rotation_bytes` must be an integer of 64 bits"),
        ("error", "sad", "`error` must be one of ok, instantiation, .* but got error='sad'"),
        ("trace", {}, "`trace` must be a list of objects"),
        ("provenance", 3, "`provenance` must be a string, but got provenance=3"),
        ("provenance", "choices=" + "9" * 5000, "`provenance` must have at most 4000 characters"),
        ("cache", "cold", "`cache` must be one of warm, network, but got cache='cold'"),
        ("colour", "red", "fields of autotune.record/1, but `colour` is unknown"),
        ("build_timeout", 3.0, "fields of autotune.record/1, but `build_timeout` is unknown"),
    ],
)
def test_a_wrong_field_is_named_with_rule_and_value(field, value, sentence):
    with pytest.raises(RecordError, match=f"^f:7: .*{sentence}"):
        Record.from_line(orjson.dumps({**orjson.loads(LINES[0]), field: value}), "f:7")


@pytest.mark.parametrize("name", [item for item in orjson.loads(LINES[0]) if item != "schema"])
def test_a_missing_field_is_named(name):
    data = orjson.loads(LINES[0])
    del data[name]
    with pytest.raises(RecordError, match=f"fields of autotune.record/1, but `{name}` is missing"):
        Record.from_line(orjson.dumps(data))


def test_the_score_is_read_from_the_text():
    for text, score in (
        ("evolution round=1 score=-0.25 choices=1,2", -0.25),
        ("tpe round=0 score=1.5e-07 transfer choices=", 1.5e-7),
        ("mine score=3", 3.0),
    ):
        assert parse_provenance(text)["score"] == score
    for text in ("", "finals", "random round=0 choices=1", "a highscore=3"):
        assert "score" not in parse_provenance(text)
    with pytest.raises(OutcomeError, match="`provenance` must be a string"):
        parse_provenance(None)
