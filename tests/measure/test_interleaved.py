"""Kernels that take turns: each has its bursts, slow moments are seen through, a crash stays with its own."""

from __future__ import annotations

import math

import numpy as np
import pytest

from measure.errors import ErrorClass, PoolError
from measure.hostlock import HostLock
from measure.interleaved import InterleavedTimer, InterleavedTiming
from measure.pool import Trial
from measure.settings import LocalSettings
from measure.worker import GroupRunner
from search_space import workloads
from tests.measure.candidates import candidates
from tests.measure.fake_executor import FakeBound, FakeExecutor
from tests.measure.helpers import EXECUTOR, trial


@pytest.fixture
def settings(tmp_path):
    return LocalSettings(executor=EXECUTOR, host_lock=str(tmp_path / "lock"))


def test_every_kernel_has_its_bursts_in_the_order_of_the_trials(settings):
    trials = [trial(seconds=1e-4 * (place + 1)) for place in (4, 0, 2, 1, 3)]
    with InterleavedTimer(1, InterleavedTiming(rounds=5, group=2), settings) as timer:
        results = timer.time(trials)
        again = timer.time(trials[:1])
    assert [result.trial for result in results] == trials and [r.index for r in results] == list(range(5))
    for result, place in zip(results, (4, 0, 2, 1, 3), strict=True):
        assert result.ok and result.latencies == (1e-4 * (place + 1),) * 5
        assert result.seconds == result.min_seconds == 1e-4 * (place + 1) and result.spread == 0.0
    assert again[0].latencies == results[0].latencies


def test_a_kernel_that_takes_the_process_along_is_alone_with_its_failure(settings):
    deeds = ["ok", "ok", "segfault", "ok", "killed", "ok", "ok"]
    trials = [trial(run=deed, place=place) for place, deed in enumerate(deeds)]
    with InterleavedTimer(1, InterleavedTiming(rounds=2), settings) as timer:
        results = timer.time(trials)
    assert [result.error for result in results] == [
        {"ok": ErrorClass.ok, "segfault": ErrorClass.crash, "killed": ErrorClass.crash}[deed] for deed in deeds
    ]
    assert [result.index for result in results] == list(range(7))
    assert "SIGSEGV" in results[2].message and math.isnan(results[2].seconds)


@pytest.mark.parametrize(
    ("deed", "error", "message"),
    [
        ("refuse", ErrorClass.crash, "the device refuses the call"),
        ("no_memory", ErrorClass.out_of_memory, "no room for the workspace"),
    ],
)
def test_a_kernel_that_raises_is_alone_with_its_failure(settings, deed, error, message):
    trials = [trial(run=how, place=place) for place, how in enumerate(("ok", "ok", deed, "ok"))]
    with InterleavedTimer(1, InterleavedTiming(rounds=2), settings) as timer:
        results = timer.time(trials)
    assert [result.error for result in results] == [ErrorClass.ok, ErrorClass.ok, error, ErrorClass.ok]
    assert message in results[2].message and [result.index for result in results] == list(range(4))


def test_what_cannot_be_built_or_bound_is_a_failure_of_its_own(settings):
    trials = [trial(), trial(build="compile"), trial(bind=True)]
    with InterleavedTimer(1, InterleavedTiming(rounds=2), settings) as timer:
        results = timer.time(trials)
    assert [result.error for result in results] == [ErrorClass.ok, ErrorClass.compile, ErrorClass.crash]
    assert results[1].message == "`factor` must divide extent, but got compile"


def test_outputs_are_checked_where_that_is_asked_for(settings):
    trials = [trial(), trial(run="wrong"), trial(run="poisoned"), trial(run="lazy")]
    for check in (False, True):
        with InterleavedTimer(1, InterleavedTiming(rounds=2, check=check), settings) as timer:
            errors = [result.error for result in timer.time(trials)]
        assert errors == [ErrorClass.ok, *[ErrorClass.wrong_output if check else ErrorClass.ok] * 3]


def test_a_kernel_that_hangs_ends_in_time(settings):
    with InterleavedTimer(1, InterleavedTiming(rounds=2, timeout_seconds=0.5), settings) as timer:
        results = timer.time([trial(), trial(run="hang")])
    assert [result.ok for result in results] == [True, False]


def test_who_waits_for_the_machine_can_be_stopped(settings):
    other = HostLock(settings.host_lock)
    assert other.acquire("build", 0.0)
    asked = []
    with InterleavedTimer(1, InterleavedTiming(rounds=2), settings) as timer:
        assert timer.time([trial()], lambda: bool(asked.append(1)) or len(asked) > 1) == []
        other.close()
        assert len(timer.time([trial()])) == 1
    assert len(asked) == 2


def test_a_fault_of_ours_is_told(settings):
    with (
        InterleavedTimer(1, InterleavedTiming(rounds=2), settings) as timer,
        pytest.raises(PoolError, match="a fault in our own code"),
    ):
        timer.time([trial(run="bug")])


def test_a_process_that_cannot_start_is_told(tmp_path):
    broken = LocalSettings(executor="tests.measure.fake_executor:BrokenExecutor", host_lock=str(tmp_path / "lock"))
    with InterleavedTimer(1, settings=broken) as timer, pytest.raises(PoolError, match="no such accelerator"):
        timer.time([trial()])


def test_a_host_that_is_slow_most_of_the_time_is_seen_through():
    calls = [0]

    class Bound(FakeBound):
        def time(self, iterations, threads=None):
            calls[0] += 1
            slow = 1.0 if calls[0] // 7 % 4 == 0 else 1.4  # seven bursts fast, then 21 slow
            return np.full(iterations, self.step["seconds"] * slow)

    class Executor(FakeExecutor):
        def bind(self, trial, module, task, copies):
            return Bound(super().bind(trial, module, task, copies).step, task, copies)

    seconds = [1e-3 * (1 + 0.02 * place) for place in range(12)]
    trials = [trial(seconds=value).to_json() for value in seconds]
    modules = [FakeExecutor().build(Trial.from_json(one)) for one in trials]
    request = {
        "trials": trials,
        "built": [{"bytes": len(module)} for module in modules],
        "rounds": 40,
        "burst_seconds": 1e-3,
        "rotation_bytes": 1,
        "seed": 0,
        "check": False,
    }
    answer, _ = GroupRunner(Executor()).handle(request, b"".join(modules), lambda: None)
    fastest = [min(result["latencies"]) for result in answer["results"]]
    assert fastest == pytest.approx(seconds)
    assert {len(result["latencies"]) for result in answer["results"]} == {40}


@pytest.mark.parametrize("cache", ["warm", "network"])
def test_real_kernels_take_turns(tmp_path, cache):
    trials = candidates(workloads.conv2d(height=8, width=8, in_channels=16, out_channels=32, padding=1), 2, cache=cache)
    with InterleavedTimer(1, InterleavedTiming(rounds=3), LocalSettings(host_lock=str(tmp_path / "lock"))) as timer:
        results = timer.time(trials)
    assert all(result.ok and len(result.latencies) == 3 and result.min_seconds > 0 for result in results)
    assert results[0].latencies != results[1].latencies


@pytest.mark.parametrize(
    ("option", "value"), [("rounds", 0), ("group", 0), ("burst_seconds", 0.0), ("rotation_bytes", 0)]
)
def test_turns_are_checked(option, value):
    with pytest.raises(ValueError, match=f"`{option}` must be .*, but got {option}={value}"):
        InterleavedTiming(**{option: value})
