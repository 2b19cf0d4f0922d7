"""The spool and its uploader: whatever fails and whenever, the store ends up with everything once."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.tracking import registry, uploader
from autotune.tracking.spool import (
    EVENTS,
    SpoolError,
    State,
    Writer,
    driver_lives,
    events,
    pending,
    read_state,
    spool_for,
    spools,
    write_state,
)
from autotune.tracking.store import Input, MetricPoint, StoreError
from autotune.tracking.uploader import Upload, only_uploader, run_folders
from tests.autotune.tracking.fake_store import World


def story(folder):
    """Events of a run of one task, with a file and a model that lie in `folder`."""
    file = folder / "schedule.txt"
    file.write_text("split")
    stamp = {"path": str(file), "bytes": 5, "changed_ns": file.stat().st_mtime_ns}
    run = {"key": "k", "backend": "fake", "uri": "http://fake", "experiment": "e", "name": "n"}
    return [
        {"event": "run", **run, "parameters": {"trials": "8"}, "tags": {"t": "1"}},
        {"event": "task", "task": "conv", "parameters": {"weight": "2"}},
        {"event": "series", "task": "conv", "name": "trial_seconds", "points": [[0, 2.0, 5], [1, 1.0, 6]]},
        {"event": "metrics", "task": "conv", "step": 2, "values": {"best_seconds": 1.0, "errors.crash": 1}},
        {"event": "metrics", "task": "", "step": 2, "values": {"best_seconds": 2.0}},
        {"event": "tags", "task": "conv", "tags": {"algorithm": "direct"}},
        {"event": "file", "task": "conv", "to": "best", **stamp},
        {"event": "model", "task": "conv", "kind": "lightgbm", "path": str(file)},
        {"event": "input", "name": "r", "digest": "d", "source": "s", "context": "replay"},
        {"event": "end", "task": "conv", "status": "FINISHED"},
        {"event": "end", "task": "", "status": "FINISHED"},
    ]


def write_spool(folder, told_events):
    """A spool of these events, whose driver is gone."""
    spool = spool_for(folder, resume=False)
    writer = Writer(spool)
    for number, event in enumerate(told_events):
        writer.write({"time_ms": 1000 + number, **event})
    writer.close()
    return spool


def upload(spool, world):
    """Uploads a spool, and returns how many attempts it took."""
    for attempt in range(1, 200):
        try:
            Upload(spool, get_store=world.store).catch_up()
        except StoreError:
            continue
        return attempt
    raise AssertionError("never done")


def test_everything_reaches_the_store(tmp_path):
    spool, world = write_spool(tmp_path, story(tmp_path)), World()
    assert pending(spool) and upload(spool, world) == 1 and not pending(spool)
    parent, child = world.runs["id of k"], world.runs["id of k/conv"]
    assert parent["parameters"] == {"trials": "8"} and parent["tags"] == {"t": "1"} and parent["start"] == 1000
    assert parent["points"] == {MetricPoint("best_seconds", 2.0, 2, 1004)}
    assert parent["inputs"] == {Input("r", "d", "s", "replay")}
    assert child["parent"] == "id of k" and child["tags"] == {"algorithm": "direct"}
    assert child["points"] == {
        MetricPoint("trial_seconds", 2.0, 0, 5),
        MetricPoint("trial_seconds", 1.0, 1, 6),
        MetricPoint("best_seconds", 1.0, 2, 1003),
        MetricPoint("errors.crash", 1, 2, 1003),
    }
    assert child["files"] == {"best/schedule.txt": b"split", "model lightgbm/schedule.txt": b"split"}
    assert (parent["status"], child["status"], parent["end"]) == ("FINISHED", "FINISHED", 1010)


@settings(deadline=None, max_examples=30)
@given(fails=st.dictionaries(st.integers(1, 30), st.booleans(), max_size=12), slices=st.sampled_from([0.0, 10.0]))
def test_a_store_that_is_away_at_any_call_misses_nothing(tmp_path_factory, fails, slices):
    folder = tmp_path_factory.mktemp("run")
    told = story(folder)
    undisturbed, disturbed = World(), World(fails)
    upload(write_spool(folder, told), undisturbed)
    spool = write_spool(folder, told)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(uploader, "SLICE", slices)
        upload(spool, disturbed)
    assert disturbed.runs == undisturbed.runs
    assert read_state(spool).problem == "" and not pending(spool)


def test_a_lost_state_uploads_nothing_twice(tmp_path):
    spool, world = write_spool(tmp_path, story(tmp_path)), World()
    upload(spool, world)
    before = {run: {**known, "points": set(known["points"])} for run, known in world.runs.items()}
    write_state(spool, State())
    upload(spool, world)
    assert world.runs == before
    (spool / "state.json").write_text("{")
    upload(spool, world)
    assert world.runs == before


def test_a_store_that_is_not_installed_is_a_problem(tmp_path):
    def missing(name):
        raise ImportError("No module named 'mlflow'")

    with pytest.raises(StoreError, match="`fake` must be installed .* No module named 'mlflow'"):
        Upload(write_spool(tmp_path, story(tmp_path)), get_store=missing).catch_up()


def test_a_problem_is_kept_until_it_is_gone(tmp_path):
    spool, world = write_spool(tmp_path, story(tmp_path)), World({3: False})
    with pytest.raises(StoreError, match="call 3 fails"):
        Upload(spool, get_store=world.store).catch_up()
    assert read_state(spool).problem == "call 3 fails" and pending(spool)
    Upload(spool, get_store=world.store).catch_up()
    assert read_state(spool).problem == ""


def test_a_driver_that_dies_without_a_word_is_killed_and_goes_on(tmp_path):
    told, world = story(tmp_path), World()
    spool = write_spool(tmp_path, told[:4])
    upload(spool, world)
    assert {known["status"] for known in world.runs.values()} == {"KILLED"} and not pending(spool)
    assert spool_for(tmp_path, resume=True) == spool
    writer = Writer(spool)
    assert not writer.fresh and driver_lives(spool)
    writer.write({"event": "resume", "time_ms": 2000, "parameters": {"trials": "9"}})
    writer.write({"event": "task", "time_ms": 2001, "task": "conv", "parameters": {"weight": "2"}})
    upload(spool, world)
    assert {known["status"] for known in world.runs.values()} == {"RUNNING"} and not pending(spool)
    assert world.runs["id of k"]["tags"]["resumed.trials"] == "9" and len(world.runs) == 2
    for event in told[4:]:
        writer.write({"time_ms": 3000, **event})
    writer.close()
    assert not driver_lives(spool)
    upload(spool, world)
    assert {known["status"] for known in world.runs.values()} == {"FINISHED"}


def test_a_file_that_a_later_run_has_replaced_is_not_uploaded(tmp_path):
    told, world = story(tmp_path), World()
    grows = {**told[6], "task": "", "grows": True}
    spool = write_spool(tmp_path, [*told[:7], grows])
    (tmp_path / "schedule.txt").write_text("split more")
    upload(spool, world)
    assert world.runs["id of k/conv"]["files"] == {}
    assert "missing.schedule.txt" in world.runs["id of k/conv"]["tags"]
    assert world.runs["id of k"]["files"] == {"best/schedule.txt": b"split more"}  # records are appended to


def test_a_torn_line_is_left_out_and_then_cut_off(tmp_path):
    spool = write_spool(tmp_path, story(tmp_path)[:2])
    whole = (spool / EVENTS).stat().st_size
    with open(spool / EVENTS, "ab") as file:
        file.write(b'{"event": "metr')
    assert [event["event"] for event, _ in events(spool, 0)] == ["run", "task"]
    writer = Writer(spool)
    writer.write({"event": "end", "time_ms": 0})
    writer.close()
    assert [(e["event"], end > whole) for e, end in events(spool, 0)] == [("run", 0), ("task", 0), ("end", 1)]


@pytest.mark.parametrize("line", ["[]", "{}", "no json"])
def test_lines_that_are_no_events_are_named(tmp_path, line):
    spool = write_spool(tmp_path, story(tmp_path)[:1])
    with open(spool / EVENTS, "a") as file:
        file.write(f"{line}\n")
    with pytest.raises(SpoolError, match="an event must be a JSON object, but got"):
        list(events(spool, 0))
    with pytest.raises(SpoolError):
        Upload(spool, get_store=World().store).catch_up()
    assert "must be a JSON object" in read_state(spool).problem


def test_unknown_events_and_unknown_tasks_are_named(tmp_path):
    first = story(tmp_path)[0]
    for event, message in [
        ({"event": "party", "task": ""}, "`event` must be a known one, but got event='party'"),
        ({"event": "end", "task": "x", "status": "FAILED"}, "must come after that of its run, but got task='x'"),
    ]:
        with pytest.raises(SpoolError, match=message):
            Upload(write_spool(tmp_path, [first, event]), get_store=World().store).catch_up()


def test_one_driver_and_one_uploader_at_a_time(tmp_path):
    writer = Writer(spool_for(tmp_path, resume=False))
    with pytest.raises(SpoolError, match="one run at a time must write events"):
        Writer(writer.folder)
    writer.close()
    writer.close()
    with only_uploader(tmp_path) as first, only_uploader(tmp_path) as second:
        assert first and not second
    with only_uploader(tmp_path) as again:
        assert again


def test_runs_are_numbered(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    first = write_spool(run, story(run))
    second = write_spool(run, story(run))
    assert spools(run) == [first, second] == [run / "tracking/0001", run / "tracking/0002"]
    assert spool_for(run, resume=True) == second and spool_for(run, resume=False).name == "0003"
    assert run_folders(tmp_path) == [run]


def test_the_lock_of_a_driver_goes_with_it(tmp_path):
    spool = write_spool(tmp_path, story(tmp_path)[:1])
    code = (
        f"import time; from pathlib import Path; from autotune.tracking.spool import Writer\n"
        f"w = Writer(Path({str(spool)!r})); print('open', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=os.getcwd()) as driver:
        assert driver.stdout.readline() == b"open\n" and driver_lives(spool)
        driver.kill()
    while driver_lives(spool):
        time.sleep(0.01)


def test_backends_are_named(monkeypatch):
    monkeypatch.delenv(registry.VARIABLE)
    assert registry.choose_backend(None) == "mlflow"
    monkeypatch.setenv(registry.VARIABLE, "none")
    assert registry.choose_backend(None) == "none" and registry.choose_backend("mlflow") == "mlflow"
    with pytest.raises(ValueError, match="must be one of none, mlflow, but got backend='mlfow'; did you mean 'mlflow'"):
        registry.choose_backend("mlfow")
    with pytest.raises(ValueError, match="must be one that stores runs"):
        registry.get("none")
