"""Databases of schedules: read and merged, carried over to other workloads, and where searches begin."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from typer.testing import CliRunner

import autotune
from autotune.cli.app import app
from autotune.config import Measure, Search
from autotune.tuner.database import Entry, ScheduleDatabase, compute_digest, open_schedules
from autotune.tuner.database.entry import DatabaseError, make_entry_key, schedule_lanes, target_kind
from autotune.tuner.database.locations import own_path, shipped_file
from autotune.tuner.database.projection import project
from autotune.tuner.database.similarity import distance, signature
from autotune.tuner.entry_store import EntryStore
from autotune.tuner.preparation import prepare_task
from autotune.tuner.search.population import Frame, SeenCandidates
from autotune.tuner.search.sampling import LegalSampler
from autotune.tuner.settings import Settings
from autotune.tuner.task import Task
from autotune.tuner.untimed import select_without_trials
from search_space import workloads
from search_space.space import generate
from targets import registry

MATMUL = workloads.matmul(24, 64, 48)
LIKE = workloads.matmul(32, 64, 64)
FAR = workloads.matmul(512, 512, 512)


def hardware():
    return registry.get("cpu").hardware


def legal(workload, seed=0, sketch=0):
    """A legal candidate, drawn at random."""
    space = generate(workload, hardware())
    (candidate,) = Frame(space).candidates(
        LegalSampler(Frame(space), SeenCandidates(), np.random.default_rng(seed)).draw(sketch, 1)
    )
    return space, candidate


def entry(workload=MATMUL, seed=0, threads=1, **changes):
    space, candidate = legal(workload, seed)
    sketch = space.sketches[candidate.sketch]
    given = Entry(
        workload.to_json(),
        "cpu",
        schedule_lanes(hardware()),
        threads,
        "warm",
        sketch.name,
        sketch.values(candidate.choices),
        1e-5,
        "here",
        "a test",
    )
    return dataclasses.replace(given, **changes)


def settings(**search):
    return Settings(measure=Measure(threads=1), search=Search(**search))


def test_an_entry_is_a_line_and_reads_back(tmp_path):
    database = ScheduleDatabase([entry(LIKE), entry(MATMUL)])
    path = tmp_path / "s.jsonl"
    database.write(path)
    again = ScheduleDatabase.read(path)
    assert list(again) == list(database) and len(path.read_text().splitlines()) == 2
    ScheduleDatabase(reversed(list(database))).write(tmp_path / "other.jsonl")
    assert (tmp_path / "other.jsonl").read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(seconds=-1.0), "`seconds` of an entry must be positive, but got seconds=-1.0"),
        (lambda d: d.update(lanes=0), "`lanes` of an entry must be a whole number from 1, but got lanes=0"),
        (lambda d: d.update(sketch=3), "`sketch` of an entry must be a text, but got sketch=3"),
        (lambda d: d.update(values={"a": 1.5}), "`values` of an entry must be whole numbers by name"),
        (lambda d: d.pop("workload"), "an entry must have cache, .*, workload, but lacks workload"),
        (lambda d: d.update(more=1), "an entry must have keys among cache, .*, but got 'more'"),
        (lambda d: d.update(values=[1]), "an entry must be whole"),
    ],
)
def test_what_is_no_entry_is_said_with_its_line(tmp_path, change, message):
    data = json.loads(entry().to_line())
    change(data)
    path = tmp_path / "s.jsonl"
    path.write_text(entry().to_line() + "\n" + json.dumps(data) + "\n")
    with pytest.raises(DatabaseError, match=f"line 2: {message}"):
        ScheduleDatabase.read(path)


@pytest.mark.parametrize("text", ["hello there", "3", "[]", "{"])
def test_a_file_that_is_no_database_is_said_to_need_json_objects(tmp_path, text):
    path = tmp_path / "notes.txt"
    path.write_text(text)
    with pytest.raises(DatabaseError, match=r"notes\.txt: line 1: an entry must be a JSON object, but (got|it ends)"):
        ScheduleDatabase.read(path)


def test_of_a_place_and_a_machine_the_fastest_stays():
    slow, fast = entry(), entry(seed=1, seconds=5e-6)
    there = entry(seconds=9e-6, machine="there")
    merged = ScheduleDatabase([slow]).merge([ScheduleDatabase([fast, there]), ScheduleDatabase([slow])])
    assert [e.seconds for e in merged.exact(fast.lookup_key, "here")] == [5e-6, 9e-6]
    assert [e.seconds for e in merged.exact(fast.lookup_key, "there")] == [9e-6, 5e-6]
    other = make_entry_key(MATMUL, "cpu", fast.lanes, 7, "warm")
    assert merged.exact(other) == []


def test_alike_are_workloads_of_one_operator_with_sizes_near_each_other():
    one, like, far = (workload.to_json() for workload in (MATMUL, LIKE, FAR))
    assert signature(one) == signature(like) != signature(workloads.softmax(24, 64).to_json())
    assert 0 == distance(one, one) < distance(one, like) < distance(one, far)
    database = ScheduleDatabase([entry(FAR), entry(LIKE), entry(MATMUL)])
    near = database.nearest(MATMUL, "cpu", schedule_lanes(hardware()), 1, "warm", 5)
    assert [e.workload for e in near] == [LIKE, FAR]
    assert database.nearest(MATMUL, "cpu", 3, 1, "warm", 5) == []


@pytest.mark.parametrize("seed", range(4))
def test_an_entry_of_the_workload_is_its_schedule_and_of_another_a_legal_one(seed):
    space, candidate = legal(MATMUL, seed)
    assert project(entry(MATMUL, seed), space) == candidate
    other = generate(LIKE, hardware())
    found = project(entry(MATMUL, seed), other)
    assert found is not None
    assert other.sketches[found.sketch].legal(np.array([found.choices], np.int32))[0]
    assert project(entry(sketch="none:at all"), space) is None
    others = {f"former.{name}": number for name, number in entry(MATMUL, seed).values.items()}
    assert project(entry(MATMUL, seed, values=others), space) is None  # a sketch of this name with other decisions


def test_a_search_begins_with_what_is_known(tmp_path):
    path = tmp_path / "s.jsonl"
    ScheduleDatabase([entry(LIKE), entry(MATMUL, seed=2), entry(FAR)]).write(path)
    how = settings(database=str(path), batch=8)
    task = Task("task", MATMUL)
    tuning = prepare_task(task, how)
    space, candidate = legal(MATMUL, 2)
    assert tuning.first[0] == candidate and 2 <= len(tuning.first) <= 3
    trials = tuning.propose()
    first = space.sketches[candidate.sketch].trace(candidate.choices)
    assert trials[0].trace_key == first.key and len({t.trace_key for t in trials}) == 8
    assert prepare_task(task, settings(database="none")).first == []
    assert prepare_task(task, settings(database=str(path), starts=1)).first == [candidate]
    exact = list(EntryStore(how).candidates(tuning.space, how.target, 8).values())
    assert exact == [True] + [False] * (len(exact) - 1)


def test_a_search_of_what_is_not_known_begins_with_the_choice_without_trials(tmp_path):
    path = tmp_path / "s.jsonl"
    ScheduleDatabase([entry(LIKE, seed=n) for n in range(6)]).write(path)
    how = settings(database=str(path), batch=4)
    tuning = prepare_task(Task("task", MATMUL), how)
    chosen = select_without_trials(Task("task", MATMUL), how, [name for name in MATMUL.algorithms if name != "library"])
    known = list(tuning.first)
    trials = tuning.propose()
    assert trials[0].trace_key == chosen.trace.key and len(trials) == 4
    assert tuning.first == [one for one in known if one not in known[:1]]  # the round's other half is the strategy's
    assert {trial.trace_key for trial in trials} > {
        tuning.space.sketches[c.sketch].trace(c.choices).key for c in known[:1]
    }
    (alone,) = prepare_task(Task("task", MATMUL), how).propose(1)
    assert alone.trace_key == chosen.trace.key
    assert prepare_task(Task("task", MATMUL), settings(database="none", starts=0)).choose is None


def test_without_trials_a_known_workload_gets_its_schedule(tmp_path):
    path, known = tmp_path / "s.jsonl", entry(MATMUL, seed=3)
    ScheduleDatabase([known]).write(path)
    how = settings(database=str(path))

    def best(workload, algorithm=known.algorithm, how=how):
        return list(EntryStore(how, lambda _: [algorithm]).best(workload, how.target))

    (found,) = best(MATMUL)
    space, candidate = legal(MATMUL, 3)
    assert found.trace.key == space.sketches[candidate.sketch].trace(candidate.choices).key and found.provisional
    assert 0 < found.seconds < 1e-4 and found.seconds != known.seconds  # the roofline's, as of other choices
    assert best(MATMUL, "im2col") == best(LIKE) == []
    assert best(MATMUL, how=dataclasses.replace(how, measure=Measure(threads=2))) == []
    assert not EntryStore(how).add(found) and len(open_schedules(str(path))) == 1


@pytest.mark.xdist_group("timing")
def test_what_a_run_finds_is_exported_merged_verified_and_begun_with(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    run = CliRunner().invoke
    records = tmp_path / "records.jsonl"
    result = autotune.tune(MATMUL, trials=8, measure=Measure(threads=1), records=str(records))
    done = run(app, ["database", "export", str(records), "-o", str(tmp_path / "s.jsonl"), "--note", "by a test"])
    assert done.exit_code == 0 and "1 entries are in" in done.output, done.output
    (kept,) = ScheduleDatabase.read(tmp_path / "s.jsonl")
    assert kept.workload == MATMUL and kept.seconds == result.best_seconds and "by a test" in kept.origin
    merged = run(app, ["database", "merge", str(tmp_path / "s.jsonl")])
    assert merged.exit_code == 0 and f"{own_path()}: 1 entries, 1 of them new or faster" in merged.output
    again = run(app, ["database", "merge", str(tmp_path / "s.jsonl")])
    assert "1 entries, 0 of them new or faster" in again.output
    listed = run(app, ["database", "list", "--match", "m=24"])
    assert (
        listed.exit_code == 0
        and f"1 of {len(open_schedules('own'))} entries" in listed.output
        and kept.sketch[:6] in listed.output
    )
    verified = run(app, ["database", "verify", str(own_path())])
    assert verified.exit_code == 0 and "1 entries are right" in verified.output, verified.output
    second = autotune.tune(MATMUL, trials=4, seed=5, measure=Measure(threads=1))
    assert next(iter(second.records)).trace_key == result.best.trace_key


def test_what_cannot_be_opened_is_said(tmp_path):
    with pytest.raises(DatabaseError, match="a database must be shipped, own, none or a file, but got 'nowhere'"):
        open_schedules("nowhere")
    assert len(open_schedules("none")) == 0
    done = CliRunner().invoke(app, ["database", "list", str(tmp_path / "no.jsonl")])
    assert done.exit_code == 2 and "a database must be" in done.output


def test_what_comes_along_fits_the_spaces_of_today():
    database = open_schedules("shipped")
    here = [e for e in database if e.lanes == schedule_lanes(hardware()) and e.target == "cpu"]
    for known in here[:: max(1, len(here) // 20)]:
        space = generate(known.workload, hardware(), [known.algorithm])
        assert project(known, space) is not None, f"{known.sketch} of {known.workload.key}"


def test_what_comes_along_is_whole_and_of_schedules_that_there_are():
    """Every entry is one; of a sample the very numbers are in the space of today, for as many lanes."""
    path = shipped_file("cpu")
    assert path.stat().st_size < 4e6
    database = ScheduleDatabase.read(path)  # every workload can be made
    assert len(database) > 300 and len({entry.lookup_key for entry in database}) == len(database)
    assert list(database) == list(open_schedules("shipped"))
    assert path.read_text() == "".join(f"{entry.to_line()}\n" for entry in database)  # in order: a change is its lines
    machines = {schedule_lanes(h): h for h in (registry.get(f"cpu:{name}").hardware for name in ("znver5", "haswell"))}
    wrong = []
    by_lanes = [[entry for entry in database if entry.lanes == lanes] for lanes in machines]
    for entry in [entry for of in by_lanes for entry in of[:: len(of) // 8]]:
        assert (target_kind(entry.target), entry.cache) == ("cpu", "network")
        machine = machines[entry.lanes]
        space = generate(entry.workload, machine, [entry.algorithm])
        candidate = project(entry, space)
        if candidate is None or space.sketches[candidate.sketch].values(candidate.choices) != dict(entry.values):
            wrong.append(entry.to_line())
    assert not wrong


def test_what_a_database_holds_has_a_digest_that_needs_no_entries(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    shipped, own = compute_digest("shipped"), compute_digest("own")
    assert shipped == own != compute_digest("none")
    ScheduleDatabase([entry()]).write(own_path())
    assert compute_digest("own") != own and compute_digest("shipped") == shipped
    assert len({compute_digest(str(own_path())), compute_digest("own"), shipped}) == 3
    with pytest.raises(DatabaseError, match="a database must be shipped, own, none or a file, but got 'nowhere'"):
        compute_digest("nowhere")


def test_a_workload_that_is_not_known_is_told_when_it_is_asked_for(tmp_path):
    data = json.loads(entry().to_line())
    data["workload"]["operator"] = "nothing"
    path = tmp_path / "s.jsonl"
    path.write_text(json.dumps(data) + "\n")
    with pytest.raises(DatabaseError, match=r"line 1: an entry must be whole, but .*nothing"):
        ScheduleDatabase.read(path)
    (found,) = ScheduleDatabase.read(path, check=False)
    with pytest.raises(DatabaseError, match="an entry must be whole, but"):
        assert found.workload


def test_named_processors_and_this_one_share_what_lanes_do_not_keep_apart():
    named = entry(target="cpu:haswell", lanes=8)
    other = entry(FAR, target="cuda:sm_90a", lanes=8)
    database = ScheduleDatabase([named, other])
    for target in ("cpu", "cpu:haswell", "cpu:skylake"):
        assert database.exact(make_entry_key(MATMUL, target, 8, 1, "warm")) == [named]
        assert database.nearest(LIKE, target, 8, 1, "warm", 4) == [named]
        assert not database.exact(make_entry_key(MATMUL, target, 16, 1, "warm"))
        assert not database.nearest(LIKE, target, 16, 1, "warm", 4)
    assert not database.exact(make_entry_key(FAR, "cuda:sm_80", 8, 1, "warm"))
    assert database.exact(make_entry_key(FAR, "cuda:sm_90a", 8, 1, "warm")) == [other]
