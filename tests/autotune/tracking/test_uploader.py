"""The uploader beside a run: it follows the driver, yields to whoever times, and sweeps up what others left."""

from __future__ import annotations

import threading
import time
from functools import partial

import pytest

from autotune.config import ConfigError
from autotune.tracking import registry, uploader
from autotune.tracking.browser import track
from autotune.tracking.launch import wait
from autotune.tracking.spool import Writer, pending, read_state, spool_for
from autotune.tracking.store import StoreError
from autotune.tracking.uploader import only_uploader, upload_run
from measure.hostlock import HostLock
from tests.autotune.tracking import fake_store
from tests.autotune.tracking.fake_store import World
from tests.autotune.tracking.test_spool import story, write_spool


@pytest.fixture
def world(monkeypatch):
    """The store called `fake`, with pauses that suit a test."""
    world = World()
    monkeypatch.setattr(registry, "get", world.store)
    monkeypatch.setattr(uploader.Upload.__init__, "__defaults__", (uploader.nullcontext, world.store))
    for name, seconds in {"LIVE": 0.02, "_POLL": 0.005}.items():
        monkeypatch.setattr(uploader, name, seconds)
    return world


def run_in(folder, name):
    run = folder / name
    run.mkdir()
    return run


def test_it_follows_a_run_to_its_end(world, tmp_path):
    told = story(tmp_path)
    writer = Writer(spool_for(tmp_path, resume=False))
    done = []
    thread = threading.Thread(target=lambda: done.append(uploader._follow(tmp_path)))
    writer.write({"time_ms": 0, **told[0]})
    thread.start()
    for event in told[1:]:
        writer.write({"time_ms": 1, **event})
        assert wait(writer.folder, 5.0, lambda: True)  # uploaded while the driver lives
    assert thread.is_alive()
    writer.close()
    thread.join(5.0)
    assert done == [True] and world.runs["id of k"]["status"] == "FINISHED"


def test_it_gives_up_for_now_when_nobody_answers(world, tmp_path):
    world.fails = dict.fromkeys(range(1, 100), False)
    spool = write_spool(tmp_path, story(tmp_path))
    assert not uploader._follow(tmp_path) and pending(spool) and read_state(spool).problem
    assert not wait(spool, 60.0, lambda: False) and not wait(spool, 0.0, lambda: True)
    world.fails = {}
    assert upload_run(tmp_path) == [] and not pending(spool)


def test_a_problem_of_long_ago_is_waited_out(world, tmp_path):
    """A server that was away while the run went on, and is back: the uploader tries once more, and so it is waited."""
    spool = write_spool(tmp_path, story(tmp_path))
    world.fails = {1: False}
    with pytest.raises(StoreError):
        uploader.Upload(spool).catch_up()
    assert read_state(spool).problem and pending(spool)
    thread = threading.Thread(target=lambda: (time.sleep(0.2), uploader._follow(tmp_path)))
    thread.start()
    assert wait(spool, 30.0, thread.is_alive) and world.runs["id of k"]["status"] == "FINISHED"
    thread.join()


def test_a_spool_that_cannot_be_read_stops_no_other(world, tmp_path):
    told = story(tmp_path)
    broken = write_spool(tmp_path, [told[0], {"event": "no such"}])
    whole = write_spool(tmp_path, told)
    (problem,) = upload_run(tmp_path)
    assert "0001" in problem and pending(broken) and not pending(whole)


def test_the_next_run_uploads_what_an_earlier_one_left(world, tmp_path):
    mine, other, elsewhere, busy = (run_in(tmp_path, name) for name in ("mine", "other", "elsewhere", "busy"))
    told = story(tmp_path)
    write_spool(mine, told)
    left = write_spool(other, [{**told[0], "key": "left"}, *told[1:]])
    away = write_spool(elsewhere, [{**told[0], "key": "away", "uri": "http://away"}, *told[1:]])
    taken = write_spool(busy, [{**told[0], "key": "taken"}, *told[1:]])
    with only_uploader(busy):  # somebody is at it
        assert uploader._follow(mine)
        uploader._upload_others(mine)
    assert not pending(left) and pending(away) and pending(taken)
    assert {known["status"] for known in world.runs.values()} == {"FINISHED"}
    assert set(world.runs) == {f"id of {key}" for key in ("k", "k/conv", "left", "left/conv")}


def test_a_run_that_goes_on_is_not_waited_for(world, tmp_path):
    writer = Writer(spool_for(tmp_path, resume=False))
    writer.write({"time_ms": 0, **story(tmp_path)[0]})
    with only_uploader(tmp_path), pytest.raises(StoreError, match="must be done uploading, but the run goes on"):
        track(tmp_path)
    assert track(tmp_path) == "http://fake" and world.runs["id of k"]["status"] == "RUNNING"
    writer.close()
    with pytest.raises(ConfigError, match="`RUN` must be the folder of a tracked run"):
        track(tmp_path / "tracking")


def test_it_computes_only_while_nobody_times():
    entered = threading.Event()

    def turn():
        with uploader._exclude_timing():
            entered.set()

    lock = HostLock()
    assert lock.acquire("time", 5.0)
    thread = threading.Thread(target=turn)
    thread.start()
    assert not entered.wait(0.3)
    assert lock.acquire("build", 5.0)  # builds and uploads go on side by side
    assert entered.wait(5.0)
    thread.join()
    lock.close()


def test_a_server_is_waited_for_outside_of_turns(tmp_path):
    """A server that does not answer must keep nobody from timing; a database computes here."""
    free, world = [], World()

    class WatchedStore(fake_store.FakeStore):
        def log_tags(self, run, tags):
            lock = HostLock()
            free.append(lock.acquire("time", 0.0))
            lock.close()
            super().log_tags(run, tags)

    for uri in ("http://fake", f"sqlite:///{tmp_path}/fake.db"):
        told = story(tmp_path)
        told[0] |= {"uri": uri}
        spool = write_spool(tmp_path, told)
        uploader.Upload(spool, uploader._exclude_timing, lambda name: partial(WatchedStore, world=world)).catch_up()
    assert free == [True, False]
