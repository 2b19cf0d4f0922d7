"""Tuning on a fleet whose machines come and go finds what a pool of one machine finds."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from autotune.tuner.interrupt import Interrupt
from autotune.tuner.loop import run_rounds
from benchmarks.simulated_fleet import SimulatedBuilder, SimulatedDevice, SimulatedProvider
from measure.database import Database
from measure.fleet.endpoint import EndpointLost
from measure.fleet.pool import FleetPool
from measure.fleet.scheduler import Fleet
from tests.autotune import fakes

CPU = frozenset({"cpu"})


def several():
    of = fakes.space()
    return [
        fakes.tuning(
            replace(of, workload=fakes.FakeWorkload(f"w{place}")), name=f"t{place}", seed=place, batch=8, finalists=2
        )
        for place in range(3)
    ]


def latency(trial) -> float:
    return fakes.FakePool(fakes.space()).answer(trial)


class Frail(SimulatedDevice):
    """Is lost with its fifth trial, or the next one that was not lost before."""

    left = 5
    lost_keys: set

    async def run(self, trial, module, best_seconds):
        self.left -= 1
        if self.left <= 0 and trial.trace_key not in self.lost_keys:
            self.lost_keys.add(trial.trace_key)
            raise EndpointLost("it was unplugged")
        return await super().run(trial, module, best_seconds)


class Frailties:
    """A provider that replaces each device that is lost."""

    def __init__(self) -> None:
        self.count, self.lost_keys = 0, set()

    async def provide(self, fleet: Fleet) -> None:
        fleet.join(SimulatedBuilder("builder", CPU, 4, 0.0005))
        await asyncio.gather(*(self._board(fleet, place) for place in range(4)))

    async def _board(self, fleet: Fleet, index: int) -> None:
        while True:
            self.count += 1
            device = Frail(f"board {index}", CPU, latency, 0.0005)
            device.lost_keys = self.lost_keys
            fleet.join(device)
            await fleet.left(device)


def keys(records):
    return [(record.trace_key, record.seconds, record.provenance.order) for record in records]


def test_machines_that_come_and_go_change_no_result(tmp_path):
    plain = run_rounds(several(), fakes.FakePool(fakes.space()))
    provider = Frailties()
    with FleetPool([provider]) as pool, Database(tmp_path / "records.jsonl") as database:
        found = run_rounds(several(), pool, database)
        assert provider.count > 10
        written = list(database)
    for one, other in zip(found, plain, strict=True):
        assert keys(one.records) == keys(other.records)
        assert sorted(keys(one.finals)) == sorted(keys(other.finals))
    assert len(written) == sum(len(result.records) + len(result.finals) for result in found)
    assert {record.host["device"] for record in written} == {f"board {place}" for place in range(4)}


def test_an_interrupt_keeps_what_a_fleet_has_finished(tmp_path, monkeypatch):
    stops = []
    monkeypatch.setattr(Interrupt, "__enter__", lambda self: stops.append(self) or self)
    answered = []

    def stop(trial) -> float:
        answered.append(trial)
        if len(answered) == 30:
            stops[-1].press()
        return latency(trial)

    with FleetPool([SimulatedProvider(4, stop, 0.001, 0.0005)]) as pool, Database(tmp_path / "r.jsonl") as database:
        results = run_rounds(several(), pool, database)
        assert pool.outstanding == 0
        assert len(database) == sum(len(result.records) for result in results) > 0
    assert all(result.interrupted for result in results) and len(answered) < 60
