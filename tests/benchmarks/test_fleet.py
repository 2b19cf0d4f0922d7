"""A short run of the fleet's benchmark: many simulated devices are kept busy, by little work of the driver."""

from __future__ import annotations

import asyncio
import math

import pytest

from benchmarks.fleet import load, trial_of
from measure.errors import ErrorClass, PoolError
from measure.fleet.pool import FleetPool
from measure.fleet.simulated import SimulatedProvider, replayed
from tests.measure.helpers import record


def test_a_thousand_devices_are_kept_busy():
    found = load(devices=1000, seconds=1.0, trials=6000)
    assert found.trials == 6000
    assert 0.6 < found.busy_share <= 1.0  # six trials a device cannot fill the start and the end
    assert found.steady_share > 0.75  # on a busy machine the driver itself has to wait
    assert found.driver_share < 1.0


def test_simulated_devices_answer_from_records():
    known = [record(seconds=1e-3 * (1 + place), step=place) for place in range(3)]
    known.append(record(seconds=math.nan, step=3))
    with FleetPool([SimulatedProvider(2, replayed(known), seconds=0.001, build_seconds=0.001)]) as pool:
        results = pool.run([one.to_trial() for one in known])
        assert [result.seconds for result in results[:3]] == [one.seconds for one in known[:3]]
        assert results[3].error is ErrorClass.unknown and results[3].message
        assert {result.host["device"] for result in results} == {"simulated device 0", "simulated device 1"}
        pool.submit([trial_of(0)])
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
    answer = asyncio.run(provider.builder.build(trial_of(0)))
    start, end = answer.header["span"]
    assert end - start >= 0.0099
