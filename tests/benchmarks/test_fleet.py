"""A short run of the fleet's benchmark: many simulated devices are kept busy, by little work of the driver."""

from __future__ import annotations

import asyncio
import math
import selectors

import pytest

from benchmarks.fleet import load, make_trial
from benchmarks.simulated_fleet import SimulatedProvider, make_latency
from measure.errors import ErrorClass, PoolError
from measure.fleet.members import Work
from measure.fleet.pool import FleetPool
from measure.fleet.scheduler import Fleet, FleetSettings
from tests.measure.helpers import change_record, record


class Jumps(selectors.SelectSelector):
    """Waits in no time: the loop's clock jumps instead, so that what a busy machine does cannot be seen."""

    now = 0.0

    def select(self, timeout=None):
        assert timeout is not None, "nothing goes on"
        self.now += timeout
        return []


def test_a_thousand_devices_are_kept_busy():
    """The scheduler alone is tested: its clock is simulated, and work is at hand."""
    selector = Jumps()
    loop = asyncio.SelectorEventLoop(selector)
    loop.time = lambda: selector.now
    finished = []

    async def measure() -> None:
        trials, done = 6000, asyncio.Event()

        def report(result) -> None:
            finished.append(loop.time())
            if len(finished) == trials:
                done.set()
            elif len(finished) + fleet.capacity <= trials:
                fleet.submit([Work(len(finished) + fleet.capacity - 1, make_trial(0))])

        fleet = Fleet(FleetSettings(), report, pytest.fail)
        fleet.start([SimulatedProvider(1000, lambda trial: 1e-3, seconds=1.0, build_seconds=0.05)])
        while fleet.capacity == 1:
            await asyncio.sleep(0)
        fleet.submit([Work(place, make_trial(0)) for place in range(fleet.capacity)])
        await done.wait()
        await fleet.close()

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(measure())
    assert len(finished) == 6000
    assert 6000 / (1000 * finished[-1]) > 0.9  # six trials each cannot fill the start and the end
    assert 3000 / (1000 * (finished[4500] - finished[1500])) > 0.99


def test_the_driver_of_a_thousand_devices_needs_a_part_of_a_core():
    found = load(devices=1000, seconds=0.5, trials=6000)
    assert found.trials == 6000 and 0 < found.busy_share <= 1.0 and found.steady_share > 0
    each = found.driver_share * found.seconds / found.trials  # of the processor, whoever else uses it
    assert each < 0.001, f"{each * 1e3:.2f} ms a trial"


def test_simulated_devices_answer_from_records():
    known = [record(seconds=1e-3 * (1 + place), step=place) for place in range(3)]
    known.append(
        change_record(record(step=3), error=ErrorClass.crash, seconds=math.nan, latencies=(), message="it crashed")
    )
    with FleetPool([SimulatedProvider(2, make_latency(known), seconds=0.001, build_seconds=0.001)]) as pool:
        results = pool.run([one.to_trial() for one in known])
        assert [result.seconds for result in results[:3]] == [one.seconds for one in known[:3]]
        assert results[3].error is ErrorClass.unknown and results[3].message
        assert {result.host["device"] for result in results} == {"simulated device 0", "simulated device 1"}
        pool.submit([make_trial(0)])
        with pytest.raises(PoolError, match="`trial` must be in the table of 4 records, but got trace_key=0000"):
            pool.results()


def test_too_few_trials_are_refused():
    with pytest.raises(ValueError, match="`trials` must be at least 6 for each device, but got trials=5, devices=1"):
        load(devices=1, seconds=1.0, trials=5)


def test_no_devices_are_refused():
    with pytest.raises(ValueError, match="`devices` must be at least 1, but got devices=0"):
        SimulatedProvider(0, lambda trial: 1.0)


def test_a_build_is_part_of_a_trial():
    provider = SimulatedProvider(1, lambda trial: 1.0, seconds=0.0, build_seconds=0.01)
    answer = asyncio.run(provider.builder.build(make_trial(0)))
    start, end = answer.header["span"]
    assert end - start >= 0.0099
