"""The contract of measuring pools; a contributor's own pool is added to `POOLS` and must pass it."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from measure.errors import ErrorClass, PoolError
from measure.fleet.pool import FleetPool
from measure.local import LocalPool
from measure.replay import ReplayPool
from measure.rpc.pool import RpcPool
from measure.rpc.settings import RpcAddress
from measure.settings import LocalSettings
from tests.measure.fleet.endpoints import FakeBuilder, FakeDevice, FixedProvider
from tests.measure.helpers import EXECUTOR, trial
from tests.measure.noise import NoisyPool
from tests.measure.ray.session import ray_pool
from tests.measure.rpc.processes import Process, settings

GOOD = [trial(seconds=1e-3 * (1 + place)) for place in range(5)]
BAD = trial(build="compile")


def local(folder: Path) -> LocalPool:
    return LocalPool(LocalSettings(builders=2, executor=EXECUTOR, host_lock=str(folder / "host.lock")))


def replay(folder: Path) -> ReplayPool:
    return ReplayPool({**{good.trace_key: good.trace[0]["seconds"] for good in GOOD}, BAD.trace_key: math.nan})


def noisy(folder: Path) -> NoisyPool:
    return NoisyPool(replay(folder), np.random.default_rng(0), relative=0.01)


def fleet(folder: Path) -> FleetPool:
    devices = [FakeDevice(f"device{place}", host=f"host{place}", seconds=0.001) for place in range(2)]
    return FleetPool([FixedProvider(FakeBuilder("builder", slots=2), *devices)])


class RpcPoolOfItsOwn(RpcPool):
    """A pool with a worker on this host, which ends with it."""

    def __init__(self, folder: Path) -> None:
        lock = str(folder / "host.lock")
        self.worker = Process(folder, "worker", "--executor", EXECUTOR, "--host-lock", lock)
        local_settings = LocalSettings(builders=1, executor=EXECUTOR, host_lock=lock)
        super().__init__([RpcAddress(self.worker.address)], settings(), local=local_settings)

    def close(self) -> None:
        super().close()
        self.worker.end()


POOLS = {
    "local": local,
    "replay": replay,
    "noisy": noisy,
    "fleet": fleet,
    "rpc": RpcPoolOfItsOwn,
    "ray": ray_pool,
}
KINDS = [pytest.param(kind, marks=pytest.mark.xdist_group("ray")) if kind == "ray" else kind for kind in POOLS]


@pytest.fixture(scope="module", params=KINDS)
def pool(request, tmp_path_factory):
    with POOLS[request.param](tmp_path_factory.mktemp("pool")) as pool:
        yield pool


def test_run_answers_in_the_order_of_its_trials(pool):
    order = [GOOD[3], GOOD[0], GOOD[4], GOOD[0]]
    results = pool.run(order)
    assert [result.trial for result in results] == order
    assert [result.seconds for result in results] == pytest.approx(
        [tried.trace[0]["seconds"] for tried in order], rel=0.1
    )
    assert all(result.ok and len(result.latencies) >= 1 and result.spread >= 0 for result in results)


def test_indices_count_the_submissions(pool):
    first = pool.run(GOOD[:2])
    second = pool.run(GOOD[:1])
    assert [result.index for result in first + second] == list(range(first[0].index, first[0].index + 3))


def test_a_failed_trial_is_a_result_and_harms_no_other(pool):
    results = pool.run([GOOD[0], BAD, GOOD[1]])
    assert [result.ok for result in results] == [True, False, True]
    assert results[1].error is not ErrorClass.ok and results[1].message
    assert math.isnan(results[1].seconds) and results[1].latencies == ()


def test_results_arrive_once_each_and_then_there_are_none(pool):
    pool.submit(GOOD[:3])
    pool.submit(GOOD[3:])
    assert pool.outstanding == 5
    seen = []
    while pool.outstanding:
        seen += pool.results()
        assert len(seen) + pool.outstanding == 5
    assert sorted(result.trial.trace_key for result in seen) == sorted(good.trace_key for good in GOOD)
    assert pool.results() == [] and pool.results(0.1) == []


def test_nothing_submitted_is_nothing_measured(pool):
    assert pool.run([]) == []


def test_a_cancelled_pool_can_be_used_again(pool):
    pool.submit(GOOD)
    pool.cancel()
    while pool.outstanding:  # what was finished already
        pool.results()
    assert pool.run(GOOD[:1])[0].trial == GOOD[0]


def test_it_wants_at_least_one_trial(pool):
    assert pool.capacity >= 1


def test_run_refuses_to_mix_with_outstanding_results(pool):
    pool.submit(GOOD[:1])
    with pytest.raises(PoolError, match="`run` must start with no result outstanding, but got outstanding=1"):
        pool.run(GOOD[1:])
    assert len(pool.results()) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_closed_pool_takes_nothing(kind, tmp_path):
    pool = POOLS[kind](tmp_path)
    pool.close()
    pool.close()
    with pytest.raises(PoolError, match="`submit` must be called on an open pool"):
        pool.submit(GOOD)
