"""Faults on real processes: kernels that misbehave, workers that die, wires that are cut, clients that vanish."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import subprocess
import sys
import time

import pytest

from measure.errors import ErrorClass
from measure.fleet.endpoint import EndpointLost
from measure.rpc.client import RpcDevice
from tests.measure.helpers import EXECUTOR, trial
from tests.measure.rpc.processes import ROOT, TOKEN, Wire, eventually, module, settings, worker


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("rpc")


@pytest.fixture(scope="module")
def board(folder):
    with worker(folder, "--memory-mb", "1024") as process:
        yield process


def run(address, *trials, check="device", **changes):
    """Answers of a device to trials, one after the other."""

    async def scenario():
        device = await RpcDevice.connect(address, settings(**changes), check)
        try:
            return [await device.run(tried, module(tried), None) for tried in trials]
        finally:
            await device.close()

    return asyncio.run(scenario())


@pytest.mark.parametrize(
    ("check", "step", "error", "message"),
    [
        ("device", {"run": "segfault"}, ErrorClass.crash, "the run process died (SIGSEGV)"),
        ("device", {"run": "hang"}, ErrorClass.run_timeout, "the run process was killed after its time-out of 0.3 s"),
        ("client", {"run": "eat"}, ErrorClass.out_of_memory, "ran out of memory"),
        ("device", {"run": "wrong"}, ErrorClass.wrong_output, "1 of 4 elements wrong, first at [1]"),
        ("client", {"run": "wrong"}, ErrorClass.wrong_output, "1 of 4 elements wrong, first at [1]"),
        ("client", {"run": "lazy"}, ErrorClass.wrong_output, "first at [3]: expected 0."),
    ],
)
def test_a_bad_kernel_gets_its_class_and_the_device_goes_on(board, check, step, error, message):
    bad = trial(options={"run_timeout": 0.3} if "hang" in step.values() else {}, **step)
    answers = run(board.address, trial(seconds=1e-3), bad, trial(seconds=2e-3), check=check)
    assert [answer.error for answer in answers] == [ErrorClass.ok, error, ErrorClass.ok]
    assert message in answers[1].header["message"]
    assert answers[0].header["seconds"] == pytest.approx(1e-3) and answers[2].header["max_error"] == 0


@pytest.mark.parametrize("check", ["device", "client"])
def test_a_kernel_that_spoils_the_inputs_is_not_blamed_on_the_next(board, check):
    first, late, last = run(board.address, trial(), trial(run="spoil_late"), trial(seconds=2e-3), check=check)
    assert [first.error, late.error, last.error] == [ErrorClass.ok] * 3


def test_the_child_killed_in_a_trial_costs_nothing_but_time(board, tmp_path):
    async def scenario():
        device = await RpcDevice.connect(board.address, settings())
        try:
            await device.run(trial(), module(trial()), None)
            hangs = trial(run="hang_once", mark=str(tmp_path / "begun"))
            under_way = asyncio.create_task(device.run(hangs, module(hangs), None))
            while not (tmp_path / "begun").exists():
                await asyncio.sleep(0.05)
            (child,) = board.children
            os.kill(child, signal.SIGKILL)
            assert (await under_way).error is ErrorClass.ok
            assert (await device.run(trial(), module(trial()), None)).error is ErrorClass.ok
        finally:
            await device.close()

    asyncio.run(scenario())


def test_a_killed_worker_is_lost_and_one_in_its_place_gets_the_trial(folder):
    slow = trial(sleep=True, seconds=0.2)

    async def scenario():
        with worker(folder) as first:
            port = first.address.rpartition(":")[2]
            patient = await RpcDevice.connect(first.address, settings(patience=20.0))
            under_way = asyncio.create_task(patient.run(slow, module(slow), None))
            await asyncio.sleep(0.3)
            children = first.children
            first.terminate(signal.SIGKILL)
        with worker(folder, "--listen", f"127.0.0.1:{port}") as second:
            assert second.address == patient.address
            assert (await under_way).header["seconds"] == pytest.approx(0.2)
            await asyncio.to_thread(eventually, lambda: not any(os.path.exists(f"/proc/{pid}") for pid in children))
            hasty = await RpcDevice.connect(second.address, settings(patience=0.3))
            under_way = asyncio.create_task(hasty.run(slow, module(slow), None))
            await asyncio.sleep(0.3)
            second.terminate(signal.SIGKILL)
            with pytest.raises(EndpointLost, match="silent for"):
                await under_way
        await asyncio.gather(patient.close(), hasty.close())

    asyncio.run(scenario())


@pytest.mark.parametrize(("how", "seconds"), [("silence", 5.0), ("refuse", 0.6)])
def test_a_connection_that_is_cut_loses_nothing(board, how, seconds, tmp_path):
    """The trial ends while nobody can hear it; it is run once."""
    log = tmp_path / "log"
    slow = trial({"log": str(log)}, sleep=True, seconds=0.3)

    async def scenario():
        with Wire(board.address) as wire:
            device = await RpcDevice.connect(wire.address, settings(lease=9.0, patience=9.0))
            try:
                under_way = asyncio.create_task(device.run(slow, module(slow), None))
                await asyncio.sleep(0.3)
                getattr(wire, how)()
                await asyncio.sleep(seconds)
                assert not under_way.done()
                wire.mend()
                answer = await under_way
                assert answer.header["seconds"] == pytest.approx(0.3)
                assert (await device.run(slow, module(slow), None)).error is ErrorClass.ok
            finally:
                await device.close()

    asyncio.run(scenario())
    assert log.read_text() == "prepared\n"  # the same process all the time


CLIENT = """
import asyncio
from measure.rpc.client import RpcDevice
from tests.measure.helpers import trial
from tests.measure.rpc.processes import module, settings
import sys

async def main():
    device = await RpcDevice.connect(sys.argv[1], settings(lease=1.0))
    hangs = trial(options={"run_timeout": 600.0}, run="hang")
    print("running", flush=True)
    await device.run(hangs, module(hangs), None)

asyncio.run(main())
"""


def test_a_killed_clients_job_is_killed_and_the_device_is_free(board):
    client = subprocess.Popen(
        [sys.executable, "-c", CLIENT, board.address], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert client.stdout is not None
    with client.stdout:
        assert client.stdout.readline() == "running\n"
        time.sleep(0.5)
        client.kill()
        client.wait()
    (answer,) = run(board.address, trial())  # this test ends before the trial that hangs
    assert answer.error is ErrorClass.ok


def test_clients_share_a_device_in_turns(board):
    async def scenario():
        devices = [await RpcDevice.connect(board.address, settings()) for _ in range(3)]
        slow = trial(sleep=True, seconds=0.02)
        try:
            answers = await asyncio.gather(*(device.run(slow, module(slow), None) for device in devices))
        finally:
            await asyncio.gather(*(device.close() for device in devices))
        spans = sorted(answer.header["span"] for answer in answers)
        assert all(before[1] <= after[0] for before, after in itertools.pairwise(spans))

    asyncio.run(scenario())


def test_a_cancelled_trial_frees_the_device(board):
    async def scenario():
        device = await RpcDevice.connect(board.address, settings())
        hangs = trial(options={"run_timeout": 600.0}, run="hang")
        try:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(device.run(hangs, module(hangs), None), 0.5)
            assert (await device.run(trial(), module(trial()), None)).error is ErrorClass.ok
        finally:
            await device.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_ends_when_it_is_told_to_and_leaves_no_process(folder, number):
    with worker(folder, "--key", "board-a") as process:
        assert process.line == f"serving cpu as board-a on {process.address}"
        children = process.children
        assert children and process.terminate(number) == 0
        assert not any(os.path.exists(f"/proc/{pid}") for pid in children)


def test_a_device_whose_child_cannot_start_says_so(folder):
    broken = EXECUTOR.replace("FakeExecutor", "BrokenExecutor")
    with worker(folder, "--executor", broken, fake=False) as process:
        with pytest.raises(EndpointLost, match="cannot work: a run process must start, but died"):
            run(process.address, trial())
        assert process.process.poll() is None
    assert TOKEN not in process.log.read_text()
