"""The fleet's scheduler on endpoints in this process: turns on a host, losses, cancelling, what ends a run."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import Counter

import pytest

from measure.errors import ErrorClass, PoolError
from measure.fleet.pool import FleetPool
from measure.fleet.scheduler import LOSSES, Fleet, FleetSettings
from measure.host import machine_name
from measure.supervisor import Answer
from tests.measure.fleet.endpoints import FakeBuilder, FakeDevice, FixedProvider, Script, make_lost, overlaps, unfit
from tests.measure.helpers import trial

QUICK = FleetSettings(start_timeout=0.2, close_timeout=5.0)


def trials(count, target="cpu", **step):
    return [trial(options={"target": target}, place=place, **step) for place in range(count)]


def on_target(*names, **options):
    return {"targets": frozenset(names), **options}


def once(action):
    """A fault that happens the first time."""
    left = [action]
    return lambda _: left.pop() if left else None


def test_builds_and_timings_on_a_host_never_overlap_and_take_turns_in_batches():
    notes = []
    builder = FakeBuilder("builder", slots=2, seconds=0.001, notes=notes)
    device = FakeDevice("device", seconds=0.001, notes=notes)
    with FleetPool([FixedProvider(builder, device)], FleetSettings(batch=8)) as pool:
        results = pool.run(trials(40))
    assert [result.index for result in results] == list(range(40)) and all(result.ok for result in results)
    assert overlaps(notes, "here") == []
    deeds = "".join(note.deed[0] for note in sorted(notes, key=lambda note: note.start))
    runs = deeds.replace("b", " ").split()
    assert len(runs) == 5 and all(len(run) == 8 for run in runs)
    building = [note for note in notes if note.deed == "build"]
    assert any(a is not b and a.start < b.end and b.start < a.end for a in building for b in building)


def test_timings_of_two_exclusive_devices_on_a_host_never_overlap():
    notes = []
    devices = [FakeDevice(f"device{place}", seconds=0.002, notes=notes) for place in range(2)]
    with FleetPool([FixedProvider(FakeBuilder("builder", notes=notes), *devices)], FleetSettings(batch=4)) as pool:
        assert all(result.ok for result in pool.run(trials(20)))
    assert overlaps(notes, "here") == []
    assert {note.name for note in notes} == {"builder", "device0", "device1"}


def test_builds_go_on_elsewhere_while_a_host_times():
    notes = []
    here = FakeBuilder("here", notes=notes, seconds=0.002)
    there = FakeBuilder("there", host="there", notes=notes, seconds=0.002)
    device = FakeDevice("device", notes=notes, seconds=0.002)
    with FleetPool([FixedProvider(here, there, device)], FleetSettings(batch=6)) as pool:
        assert all(result.ok for result in pool.run(trials(60)))
    assert overlaps(notes, "here") == []
    timings = [note for note in notes if note.deed == "run"]
    beside = [note for note in notes if note.name == "there" and any(t.start < note.start < t.end for t in timings)]
    assert len(beside) > 10
    assert Counter(note.name for note in notes)["there"] > Counter(note.name for note in notes)["here"]


def test_simulators_share_a_host_with_builds_but_not_with_timings():
    notes = []
    endpoints = [
        FakeBuilder("builder", notes=notes, seconds=0.001, **on_target("cpu", "vta")),
        FakeDevice("simulator", notes=notes, seconds=0.003, exclusive=False, **on_target("vta")),
        FakeDevice("device", notes=notes, seconds=0.001, **on_target("cpu")),
    ]
    with FleetPool([FixedProvider(*endpoints)], FleetSettings(batch=5)) as pool:
        pool.submit(trials(30))
        pool.submit(trials(30, "vta:variant"))
        results = []
        while pool.outstanding:
            results += pool.results()
    assert len(results) == 60 and all(result.ok for result in results)
    assert overlaps(notes, "here") == []
    shared = [note for note in notes if note.deed != "run"]
    assert any(a.deed != b.deed and a.start < b.end and b.start < a.end for a in shared for b in shared)


def test_no_kind_of_work_starves_where_others_keep_a_host_busy():
    """Every builder feeds a thousand trials to another device; the one here must have its turn all the same."""
    notes = []
    endpoints = [
        FakeBuilder("builder", notes=notes, seconds=0.0005),
        FakeDevice("device", notes=notes, seconds=0.0005),
        *(FakeDevice(f"other{place}", host=f"other{place}", notes=notes, seconds=0.0005) for place in range(4)),
    ]
    with FleetPool([FixedProvider(*endpoints)], FleetSettings(batch=4)) as pool:
        pool.run(trials(200))
    runs = Counter(note.name for note in notes)
    assert runs["device"] >= 10
    assert overlaps(notes, "here") == []


def test_machines_may_join_while_others_work():
    notes = []

    async def script(fleet: Fleet) -> None:
        fleet.join(FakeBuilder("builder", slots=4, notes=notes))
        fleet.join(FakeDevice("first", host="first", notes=notes, seconds=0.002))
        await asyncio.sleep(0.03)
        fleet.join(FakeDevice("second", host="second", notes=notes, seconds=0.002))
        await asyncio.Event().wait()

    with FleetPool([Script(script)]) as pool:
        results = pool.run(trials(60))
    assert len(results) == 60 and all(result.ok for result in results)
    done = Counter(note.name for note in notes if note.deed == "run")
    assert done["first"] > 5 and done["second"] > 5


def test_a_machine_that_leaves_gives_its_trial_to_another_one():
    gone = FakeDevice("gone", host="gone", seconds=60.0)

    async def script(fleet: Fleet) -> None:
        fleet.join(FakeBuilder("builder"))
        fleet.join(gone)
        while not gone.busy:
            await asyncio.sleep(0.001)
        fleet.leave(gone)
        fleet.leave(gone)
        await fleet.left(gone)
        fleet.join(FakeDevice("gone", host="gone"))  # the name is free again
        await asyncio.Event().wait()

    with FleetPool([Script(script)]) as pool:
        (result,) = pool.run(trials(1))
        assert result.ok and result.host["device"] == "gone"
        assert gone.close_count == 1 and [note.ending for note in gone.notes] == ["CancelledError"]


@pytest.mark.parametrize("kind", [FakeBuilder, FakeDevice])
def test_a_lost_machine_costs_no_trial(kind):
    weak = kind("weak", host="weak", faults=once(make_lost()))
    others = [FakeBuilder("builder", seconds=0.001), FakeDevice("device", host="device", seconds=0.001)]
    with FleetPool([FixedProvider(weak, *others)]) as pool:
        results = pool.run(trials(20))
    assert all(result.ok for result in results) and len(results) == 20
    assert [note.ending for note in weak.notes] == ["EndpointLost"] and weak.close_count


def test_a_lost_trial_is_the_next_one_that_is_measured():
    order = []

    async def script(fleet: Fleet) -> None:
        fleet.join(FakeBuilder("builder", slots=8))
        first = FakeDevice("first", host="board", faults=once(make_lost()), notes=order)
        fleet.join(first)
        await fleet.left(first)
        fleet.join(FakeDevice("second", host="board", notes=order))
        await asyncio.Event().wait()

    with FleetPool([Script(script)]) as pool:
        pool.run(trials(5))
    assert order[0].trial == order[1].trial and order[0].ending == "EndpointLost"


class Fragile:
    """A provider whose devices are ended by one trial."""

    def __init__(self, fatal) -> None:
        self.fatal, self.count = fatal, 0

    async def provide(self, fleet: Fleet) -> None:
        fleet.join(FakeBuilder("builder"))
        while True:
            self.count += 1
            board = FakeDevice("board", host="board", faults=lambda t: make_lost("board") if t == self.fatal else None)
            fleet.join(board)
            await fleet.left(board)


def test_a_trial_that_ends_machines_is_given_up():
    batch = trials(6)
    provider = Fragile(batch[2])
    with FleetPool([provider]) as pool:
        results = pool.run(batch)
    assert [result.error for result in results] == [ErrorClass.ok] * 2 + [ErrorClass.lost] + [ErrorClass.ok] * 3
    said = r"3 machines were lost with this trial; the last one: device board (cpu): board does not answer any more"
    assert results[2].message == said and math.isnan(results[2].seconds)
    assert results[2].host["device"] == "board" and provider.count == LOSSES + 1


def test_the_latency_to_beat_follows_what_was_measured():
    device = FakeDevice("device", host="board")
    steps = [trial(seconds=seconds) for seconds in (3e-3, 1e-3, 2e-3)]
    given = trial(options={"best_seconds": 5e-4}, seconds=4e-3)
    other = trial({"other": 1}, seconds=0.1)
    with FleetPool([FixedProvider(FakeBuilder("builder"), device)]) as pool:
        for one in (*steps, given, other):
            pool.run([one])
    assert device.best_times == [None, 3e-3, 1e-3, 5e-4, None]


def test_results_say_where_they_were_made():
    device = FakeDevice("board-a", host="board", description={"cpu": "Cortex-A72"})
    with FleetPool([FixedProvider(FakeBuilder("builder"), device)]) as pool:
        fine, unbuilt = pool.run([trial(), trial(build="compile")])
    assert fine.host == {"cpu": "Cortex-A72", "device": "board-a"} and unbuilt.host == {}
    assert unbuilt.error is ErrorClass.compile and unbuilt.outcome.build_seconds >= 0
    assert math.isnan(unbuilt.outcome.run_seconds)
    assert fine.build_span[1] <= fine.run_span[0]


def test_cancel_while_busy_stops_the_machines_and_leaves_them_fit():
    builder = FakeBuilder("builder", slots=2, seconds=0.001)
    device = FakeDevice("device", host="board", seconds=60.0)
    with FleetPool([FixedProvider(builder, device)]) as pool:
        pool.submit(trials(10))
        while not device.busy:
            time.sleep(0.005)
        pool.cancel()
        assert pool.outstanding == 0 and pool.results() == []
        device.seconds = 0.0
        (result,) = pool.run([trial(seconds=0.07)])
        assert result.seconds == 0.07 and result.index == 10
        assert device.notes[0].ending == "CancelledError" and not device.close_count


def test_finished_results_outlive_a_cancel():
    device = FakeDevice("device", host="board", faults=lambda t: None)
    with FleetPool([FixedProvider(FakeBuilder("builder"), device)]) as pool:
        pool.submit(trials(3))
        while len(device.notes) < 3:
            time.sleep(0.005)
        time.sleep(0.02)
        pool.cancel()
        assert pool.outstanding == 3 and len(pool.results()) == 3


def test_close_while_busy_ends_machines_and_whoever_waits():
    builder, device = FakeBuilder("builder"), FakeDevice("device", host="board", seconds=60.0)
    pool = FleetPool([FixedProvider(builder, device)])
    pool.submit(trials(4))
    waiting = threading.Thread(target=pool.results)
    waiting.start()
    while not device.busy:
        time.sleep(0.005)
    pool.close()
    waiting.join(5.0)
    assert not waiting.is_alive() and pool.outstanding == 0
    assert builder.close_count == device.close_count == 1 and device.notes[0].ending == "CancelledError"
    assert not [thread for thread in threading.enumerate() if thread.name == "fleet"]


def test_close_does_not_wait_for_ever_for_a_machine_that_does_not_end(caplog):
    class Stubborn(FakeDevice):
        async def close(self) -> None:
            await asyncio.sleep(3600.0)

    pool = FleetPool([FixedProvider(FakeBuilder("builder"), Stubborn("device"))], FleetSettings(close_timeout=0.1))
    pool.run(trials(1))
    pool.close()
    assert "did not end within 0.1 s" in caplog.text


@pytest.mark.parametrize("stays", [True, False])
@pytest.mark.parametrize(
    ("endpoints", "message"),
    [
        ([], "a builder for target='cpu' {when}, but got none at all"),
        (["device"], "a builder for target='cpu' {when}, but got device d (vta)"),
        (["builder"], "a device for target='cpu' {when}, but got builder b (cpu, vta)"),
        (["builder", "device"], "a device for target='cpu' {when}, but got builder b (cpu, vta), device d (vta)"),
    ],
)
def test_a_missing_machine_ends_the_run_and_is_named(endpoints, message, stays):
    makers = {
        "builder": lambda: FakeBuilder("b", **on_target("cpu", "vta")),
        "device": lambda: FakeDevice("d", **on_target("vta")),
    }
    when = "within 0.2 s" if stays else "now that no provider is left to bring one"
    with FleetPool([FixedProvider(*(makers[kind]() for kind in endpoints), stays=stays)], QUICK) as pool:
        pool.submit(trials(2))
        with pytest.raises(PoolError) as caught:
            pool.results()
        assert str(caught.value) == "the fleet must have " + message.format(when=when)
        with pytest.raises(PoolError, match="the fleet must have"):
            pool.submit(trials(1))


def test_a_missing_machine_is_told_before_the_run_ends(monkeypatch, caplog):
    monkeypatch.setattr("measure.fleet.scheduler.NOTICE_SECONDS", 0.05)
    with FleetPool([FixedProvider(FakeBuilder("b", **on_target("cpu", "vta")), stays=True)], QUICK) as pool:
        pool.submit(trials(1))
        with pytest.raises(PoolError, match="within 0.2 s"):
            pool.results()
    told = [record.getMessage() for record in caplog.records if "waiting" in record.getMessage()]
    assert told == ["waiting for a device for target='cpu', at most 0.2 s; there is builder b (cpu, vta) so far"]


def test_a_machine_that_is_lost_for_good_is_named():
    device = FakeDevice("d", faults=lambda _: make_lost("d"))
    with FleetPool([FixedProvider(FakeBuilder("b"), device)], QUICK) as pool:
        pool.submit(trials(1))
        with pytest.raises(PoolError, match=r"but got builder b \(cpu\); device d \(cpu\) was lost: d does not answer"):
            pool.results()


def test_a_missing_machine_is_waited_for_while_others_work():
    vta = FakeDevice("vta", host="vta", **on_target("vta"))

    async def script(fleet: Fleet) -> None:
        fleet.join(FakeBuilder("builder", **on_target("cpu", "vta")))
        fleet.join(FakeDevice("cpu", host="cpu", seconds=0.02))
        await asyncio.sleep(0.6)
        fleet.join(vta)
        await asyncio.Event().wait()

    with FleetPool([Script(script)], QUICK) as pool:
        pool.submit(trials(50) + trials(3, "vta"))
        results = []
        while pool.outstanding:
            results += pool.results()
    assert len(results) == 53 and all(result.ok for result in results) and len(vta.notes) == 3


@pytest.mark.parametrize("kind", [FakeBuilder, FakeDevice])
def test_a_machine_that_cannot_work_ends_the_run_if_it_is_the_last(kind):
    weak = kind("weak", host="weak", faults=lambda _: unfit())
    others = [FakeBuilder("builder"), FakeDevice("device", host="device")]
    with FleetPool([FixedProvider(weak, *others)]) as pool:
        assert all(result.ok for result in pool.run(trials(10)))
        assert weak.close_count
    left = [other for other in others if not isinstance(other, kind)]
    with FleetPool([FixedProvider(kind("weak", faults=lambda _: unfit()), *left)]) as pool:
        for other in left:
            other.close_count = 0
        pool.submit(trials(1))
        with pytest.raises(PoolError, match="a run process must start, but was not ready after 60 s"):
            pool.results()


async def _breaks(fleet: Fleet) -> None:
    raise RuntimeError("the cluster is on fire")


async def _says(fleet: Fleet) -> None:
    raise PoolError("`address` must be that of a cluster, but got address='nowhere'")


async def _twice(fleet: Fleet) -> None:
    fleet.join(FakeBuilder("one"))
    fleet.join(FakeDevice("one"))


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (_breaks, "^a provider must go on, but raised RuntimeError: the cluster is on fire$"),
        (_says, "^`address` must be that of a cluster, but got address='nowhere'$"),
        (_twice, "`name` must be unique in the fleet, but got name='one' again$"),
    ],
)
def test_a_provider_that_fails_ends_whoever_waits(script, message):
    with FleetPool([FixedProvider(), Script(script)]) as pool:
        pool.submit(trials(1))
        with pytest.raises(PoolError, match=message) as caught:
            pool.results()
        assert caught.value.__cause__ is not None


def test_results_that_are_there_come_before_the_failure():
    async def script(fleet: Fleet) -> None:
        fleet.join(FakeBuilder("b"))
        fleet.join(device := FakeDevice("d", seconds=0.001))
        while len(device.notes) < 3:
            await asyncio.sleep(0)
        raise RuntimeError("the rest is silence")

    with FleetPool([Script(script)], FleetSettings(batch=4)) as pool:
        pool.submit(trials(1000))
        time.sleep(0.05)
        assert len(pool.results()) >= 3
        with pytest.raises(PoolError, match="the rest is silence"):
            while pool.results(0.0) is not None:
                pass


@pytest.mark.parametrize("kind", [FakeBuilder, FakeDevice])
def test_an_endpoint_with_a_bug_ends_the_run_and_is_named(kind):
    faulty = kind("x", faults=lambda _: KeyError("span"))
    others = [other for other in (FakeBuilder("b"), FakeDevice("d")) if not isinstance(other, kind)]
    with FleetPool([FixedProvider(faulty, *others)]) as pool:
        pool.submit(trials(1))
        with pytest.raises(PoolError, match=r" x \(cpu\) must answer or be lost, but raised KeyError: 'span'"):
            pool.results()


def test_an_answer_that_is_none_ends_the_run():
    class Mute(FakeBuilder):
        async def build(self, trial):
            return None

    with FleetPool([FixedProvider(Mute("mute"), FakeDevice("d"))]) as pool:
        pool.submit(trials(1))
        with pytest.raises(PoolError, match=r"builder mute \(cpu\) must answer or be lost, but raised AttributeError"):
            pool.results()


def test_an_endpoint_that_is_no_coroutine_ends_the_run():
    class Blocking(FakeBuilder):
        def build(self, trial):
            return Answer({}, b"")

    with FleetPool([FixedProvider(Blocking("b"), FakeDevice("d"))]) as pool:
        pool.submit(trials(1))
        with pytest.raises(
            PoolError, match="an endpoint must be a builder or a device, but raised TypeError: a corout"
        ):
            pool.results()


def test_a_machine_that_joins_while_the_pool_closes_is_closed_too():
    late = FakeDevice("late")

    async def script(fleet: Fleet) -> None:
        fleet.join(FakeBuilder("b"))
        fleet.join(FakeDevice("d"))
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)
            fleet.join(late)

    with FleetPool([Script(script)]) as pool:
        pool.run(trials(1))
    assert late.close_count == 1


def test_capacity_follows_the_machines():
    board = FakeDevice("board", host="board")

    async def script(fleet: Fleet) -> None:
        fleet.join(FakeBuilder("b", host=machine_name(), slots=3))
        fleet.join(FakeDevice("local", host=machine_name()))
        await asyncio.sleep(0.1)
        fleet.join(board)
        await fleet.left(board)

    with FleetPool([Script(script)]) as pool:
        assert pool.capacity == 1
        pool.warm_up(1)
        time.sleep(0.05)
        assert pool.capacity == 1  # search would disturb what is timed on this machine
        while pool.capacity == 1:
            time.sleep(0.01)
        assert pool.capacity == 2 * 2 + 3
        board.faults = lambda _: make_lost()
        pool.run(trials(8))
        assert pool.capacity == 1


@pytest.mark.parametrize("name", ["batch", "start_timeout", "close_timeout"])
def test_settings_out_of_range_are_refused(name):
    with pytest.raises(ValueError, match=f"`{name}` must be positive, but got {name}=0"):
        FleetSettings(**{name: 0})
