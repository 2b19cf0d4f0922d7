"""Replay tables: made in several sessions, stored, looked up, and honest about what they do not know."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from autotune.tuner.search.base import Candidate
from benchmarks.search import collect as collecting
from benchmarks.search.collect import Collection, collect, simulate
from benchmarks.search.replay import FOLDER, ReplayTable, TableError
from benchmarks.search.restrict import legal_rows
from measure.errors import ErrorClass
from measure.outcome import Outcome
from measure.pool import TrialResult
from measure.replay import ReplayError
from search_space.space import make_program
from targets import registry
from targets.vta.isa import EncodingError
from tests.benchmarks.search.tiny import TINY


@pytest.fixture(scope="module")
def table_and_folder(tmp_path_factory):
    """The tiny table, made in two sessions; the second one checks a sample by the ordinary pool."""
    folder = tmp_path_factory.mktemp("tables")
    assert collect(TINY, folder / "parts", folder, limit=70) is None
    assert not (folder / "tiny.json").exists()
    return collect(TINY, folder / "parts", folder), folder


def test_every_candidate_has_what_the_simulator_says(table_and_folder):
    table, _ = table_and_folder
    target = registry.get("vta")
    assert len(table.seconds) == sum(len(legal_rows(sketch)) for sketch in table.space.sketches) > 70
    candidates = table.frame.candidates(table.population)
    for place in range(0, len(candidates), 29):
        sketch = table.space.sketches[candidates[place].sketch]
        trace = sketch.trace(candidates[place].choices)
        kernel = target.load(target.build(make_program(TINY.make(), sketch.algorithm, trace)))
        assert table.seconds[place] == kernel.seconds


def test_a_table_is_read_as_it_was_written(table_and_folder):
    table, folder = table_and_folder
    again = ReplayTable.load(folder / "tiny.json")
    np.testing.assert_allclose(again.seconds, table.seconds, rtol=1e-9)
    assert (again.workload, again.hardware, again.restriction) == (table.workload, table.hardware, table.restriction)
    assert (again.target, again.threads, again.kind) == ("vta", 1, "tiny") and again.errors == table.errors
    assert again.provenance["command"] == "python -m benchmarks.search collect --task tiny"
    assert {"host", "date"} <= set(again.provenance)


def test_look_up_finds_every_candidate_in_any_order(table_and_folder):
    table, _ = table_and_folder
    order = np.random.default_rng(0).permutation(len(table.seconds))
    asked = table.frame.candidates(table.population.take(order))
    np.testing.assert_array_equal(table.look_up(asked), order)


def test_nothing_stands_in_for_a_candidate_outside(table_and_folder):
    table, _ = table_and_folder
    (known,) = table.frame.candidates(table.population.take(np.array([5])))
    sketch = table.space.sketches[0]
    lengths = [len(group.table) for group in sketch.groups]
    everything = np.stack(np.unravel_index(np.arange(sketch.size), lengths), axis=1).astype(np.int32)
    illegal = everything[~sketch.legal(everything)]
    outside = [
        (0, (lengths[0], *known.choices[1:])),
        (0, (-1, *known.choices[1:])),
        (0, known.choices[:-1]),
        *((0, tuple(row.tolist())) for row in illegal[:1]),
    ]
    assert len(illegal)
    for place, choices in outside:
        with pytest.raises(ReplayError, match=r"`candidate` must be in the replay table of \d+ candidates of tiny"):
            table.look_up([known, Candidate(place, choices)])


def test_a_changed_sketch_rule_is_one_clear_sentence(table_and_folder, tmp_path):
    _, folder = table_and_folder
    data = json.loads((folder / "tiny.json").read_text())
    changed = {
        "digest": {**data, "digest": "0" * 32},
        "rows": {**data, "restriction": {**data["restriction"], "sketches": {"direct:gone": {}}}},
    }
    for name, document in changed.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
        with pytest.raises(
            TableError, match="must be of today's search space.*a sketch rule has changed; make it again"
        ):
            ReplayTable.load(tmp_path / f"{name}.json")
    (tmp_path / "old.json").write_text(json.dumps({**data, "format": 0}))
    with pytest.raises(TableError, match=r"`format` of old.json must be 1, but got format=0"):
        ReplayTable.load(tmp_path / "old.json")


def test_what_random_search_needs_on_average(table_and_folder):
    table, _ = table_and_folder
    size, good = len(table.seconds), table.good(0.9)
    rng = np.random.default_rng(0)
    marks = table.seconds <= table.best / 0.9
    drawn = [int(np.argmax(marks[rng.permutation(size)])) + 1 for _ in range(4000)]
    assert 0 < good < size
    assert table.random_trials(0.9) == pytest.approx(np.mean(drawn), rel=0.1)


def test_a_journal_of_another_space_is_refused(tmp_path, table_and_folder):
    _, folder = table_and_folder
    path = folder / "parts" / "tiny.jsonl"
    lines = path.read_text().splitlines()
    (tmp_path / "tiny.jsonl").write_text("\n".join([json.dumps({"task": "tiny", "digest": "0"}), *lines[1:]]) + "\n")
    with pytest.raises(ValueError, match=r"`.*tiny.jsonl` must be of .*: move it away to begin anew"):
        Collection(TINY, tmp_path)


def test_a_torn_line_costs_one_measurement(tmp_path, table_and_folder):
    _, folder = table_and_folder
    whole = (folder / "parts" / "tiny.jsonl").read_bytes()
    (tmp_path / "tiny.jsonl").write_bytes(whole[:-9])
    assert len(Collection(TINY, tmp_path).missing) == 1


def test_processes_find_the_same_and_failures_are_kept(table_and_folder, tmp_path):
    table, _ = table_and_folder
    collection = Collection(TINY, tmp_path)
    collecting._simulate_all(collection, collection.missing[:24], 2)
    assert [collection.seconds[p][0] for p in collection.order[:24]] == [
        table.seconds[p] for p in collection.order[:24]
    ]
    collection.keep([collection.order[24]], [(math.nan, math.nan, "BuildError")])
    again = Collection(TINY, tmp_path)
    assert len(again.seconds) == 25 and math.isnan(again.seconds[again.order[24]][0])
    assert again.errors == {again.order[24]: "BuildError"}


def test_a_stream_that_breaks_a_rule_is_a_failure(monkeypatch, tmp_path):
    collection = Collection(TINY, tmp_path)
    (candidate,) = collection.frame.candidates(collection.population.take(np.array([0])))
    assert simulate(collection.space, "vta", candidate)[2] == "ok"
    with monkeypatch.context() as patched:
        patched.setattr("targets.vta.kernel.static_problems", lambda *arguments: ["made up"])
        seconds, _, error = simulate(collection.space, "vta", candidate)
    assert math.isnan(seconds) and error == "crash"
    monkeypatch.setattr("targets.vta.target.encode_table", refuse)
    seconds, _, error = simulate(collection.space, "vta", candidate)
    assert math.isnan(seconds) and error == "build"


def refuse(*arguments):
    raise EncodingError("made up")


class FakePool:
    """Latencies by the order in which candidates are first seen; results come in another order than trials."""

    def __init__(self, seconds):
        self.seconds, self.turns, self.waiting, self.count = seconds, {}, [], 0

    def submit(self, trials):
        self.waiting = [(self.count + i, trial) for i, trial in enumerate(trials)][::-1]
        self.count += len(trials)

    @property
    def outstanding(self):
        return len(self.waiting)

    def results(self):
        index, trial = self.waiting.pop()
        turns = self.turns.setdefault(trial.trace_key, [])
        place = list(self.turns).index(trial.trace_key)
        turns.append(self.seconds(place, len(turns)))
        if math.isnan(turns[-1]):
            return [TrialResult(trial, index, Outcome(error=ErrorClass.crash))]
        return [TrialResult(trial, index, Outcome((turns[-1], 1.01 * turns[-1]), 1.005 * turns[-1]))]


def test_the_fastest_take_turns_once_more_and_count_by_their_fastest(tmp_path, monkeypatch):
    def seconds(index, turn):
        if index == 3:
            return math.nan
        return 1.0 + 1e-3 * index + (0.5 if turn in disturbed.get(index, ()) else 0.0)

    class Timer(FakePool):
        """A substitute for `InterleavedTimer` that answers from the pool's results so far."""

        def __init__(self, threads, turns):
            self.turns_wanted = turns
            asked.append(turns)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def time(self, trials):
            assert len(trials) <= self.turns_wanted.group
            pool.submit(trials)
            found = []
            while pool.outstanding:
                found += pool.results()
            return sorted(found, key=lambda result: result.index)

    disturbed = {0: (1,), 20: (0,)}
    collection, asked = Collection(TINY, tmp_path), []
    pool = FakePool(seconds)
    monkeypatch.setattr(collecting, "InterleavedTimer", Timer)
    collecting._time_in_turns(collection, collection.missing, collecting.TURNS)
    assert not collection.missing and {len(values) for values in collection.seconds.values()} == {1}
    assert list(collection.errors.values()) == ["crash"]
    collecting._time_in_turns(collection, collection.close(), collecting.CLOSE_TURNS)
    table = collection.table()
    assert {len(values) for values in collection.seconds.values()} == {1, 2}
    assert asked == [collecting.TURNS, collecting.CLOSE_TURNS]
    assert collection.best == table.best == 1.0 and int(np.sum(table.seconds > 1.5)) == 1
    assert collection.again[1] == [pytest.approx(1.01 * value) for value in collection.seconds[1]]
    assert table.again is None  # a simulator says the same again
    assert table.errors == {"crash": 1} and int(np.isnan(table.seconds).sum()) == 1


def test_a_repeat_is_kept_and_what_is_best_goes_by_it(table_and_folder, tmp_path):
    table, _ = table_and_folder
    repeat = np.where(np.arange(len(table.seconds)) == 5, 1e-9, 2 * table.seconds)
    twice = replace(table, name="twice", again=repeat)
    found = ReplayTable.load(twice.save(tmp_path))
    np.testing.assert_allclose(found.judging_seconds, repeat, rtol=1e-5)
    np.testing.assert_allclose(found.seconds, table.seconds, rtol=1e-5)
    assert found.best == 1e-9 and found.good(0.5) == 1 and table.judging_seconds is table.seconds


def test_tables_in_the_repository_are_of_todays_space_and_small():
    paths = sorted(FOLDER.glob("*.json"))
    assert paths and sum(path.stat().st_size for path in paths) < 3 << 20
    for path in paths:
        table = ReplayTable.load(path)
        assert table.name == path.stem and len(table.population) == len(table.seconds)
        assert np.isfinite(table.best) and table.provenance["command"].endswith(f"--task {table.name}")
