"""Builder and device on this host, on real child processes."""

from __future__ import annotations

import asyncio

import pytest

from measure.errors import ErrorClass, PoolError
from measure.fleet.endpoint import EndpointLost
from measure.fleet.local import LocalBuilder, LocalDevice
from measure.hostlock import HostLock
from measure.settings import LocalSettings
from tests.measure.helpers import EXECUTOR, trial


@pytest.fixture
def settings(tmp_path):
    return LocalSettings(executor=EXECUTOR, host_lock=str(tmp_path / "host.lock"), prepare_timeout=5.0)


def test_a_trial_is_built_and_run(settings):
    async def scenario():
        builder, device = LocalBuilder(2, settings), LocalDevice("cpu", settings, "board")
        try:
            assert {"cpu", "vta"} <= builder.targets and builder.slots == 2 and builder.host == device.host
            assert device.exclusive and device.description["device"] == "board"
            steps = [trial(seconds=1e-3), trial(build="compile"), trial(run="wrong")]
            built = await asyncio.gather(*(builder.build(step) for step in steps))
            assert [answer.error for answer in built] == [ErrorClass.ok, ErrorClass.compile, ErrorClass.ok]
            good, bad = [await device.run(steps[place], built[place].blob, None) for place in (0, 2)]
            assert good.header["seconds"] == pytest.approx(1e-3)
            assert bad.error is ErrorClass.wrong_output
        finally:
            await asyncio.gather(builder.close(), device.close())
            await device.close()
            await builder.close()
        for call in (builder.build(steps[0]), device.run(steps[0], built[0].blob, None), device.start()):
            with pytest.raises(EndpointLost, match="must be open to work, but got closed=True"):
                await call

    asyncio.run(scenario())


def test_what_is_cancelled_or_closed_ends_at_once_and_the_next_one_works(settings):
    async def scenario():
        device = LocalDevice("vta", settings)
        hangs, good = trial(run="hang", options={"run_timeout": 600.0}), trial()
        module = b'{"run": "hang", "step": "fake"}'
        try:
            await device.start()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(device.run(hangs, module, None), 0.5)
            assert (await device.run(good, b'{"step": "fake"}', None)).error is ErrorClass.ok
            under_way = asyncio.create_task(device.run(hangs, module, None))
            await asyncio.sleep(0.3)
            await device.close()
            with pytest.raises(EndpointLost, match="was closed"):
                await under_way
        finally:
            await device.close()

    asyncio.run(scenario())


def test_a_device_waits_for_the_host_and_a_simulator_does_not(settings):
    other = HostLock(settings.host_lock)
    assert other.acquire("build", 0.0)

    async def scenario():
        board, simulator = LocalDevice("cpu", settings), LocalDevice("vta", settings)
        try:
            await asyncio.gather(board.start(), simulator.start())
            waiting = asyncio.create_task(board.run(trial(), b'{"step": "fake"}', None))
            assert (await simulator.run(trial(), b'{"step": "fake"}', None)).error is ErrorClass.ok
            assert not waiting.done()
            other.release()
            assert (await waiting).error is ErrorClass.ok
        finally:
            await asyncio.gather(board.close(), simulator.close())

    try:
        asyncio.run(scenario())
    finally:
        other.close()


def test_a_child_that_cannot_start_is_the_callers_problem(settings, tmp_path):
    async def scenario():
        broken = LocalSettings(
            executor="tests.measure.fake_executor:BrokenExecutor", host_lock=str(tmp_path / "host.lock")
        )
        builder = LocalBuilder(1, broken)
        try:
            with pytest.raises(PoolError, match="a build process must start, but died"):
                await builder.build(trial())
        finally:
            await builder.close()

    asyncio.run(scenario())
