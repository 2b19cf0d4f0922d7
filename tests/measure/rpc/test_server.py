"""Limits of what a worker holds for its clients; a server and its clients in one loop."""

from __future__ import annotations

import asyncio
from hashlib import sha256

import pytest

from measure.errors import ErrorClass, PoolError
from measure.fleet.local import LocalDevice
from measure.rpc import server as served
from measure.rpc.client import RpcDevice
from measure.rpc.server import RpcServer
from measure.rpc.service import Listen
from measure.rpc.transport import Busy, Connection, UnknownSubject
from measure.settings import LocalSettings
from tests.measure.helpers import EXECUTOR, trial
from tests.measure.rpc.processes import TOKEN, module, settings


def with_server(folder, scenario):
    async def run():
        local = LocalSettings(executor=EXECUTOR, host_lock=str(folder / "host.lock"))
        server = RpcServer(LocalDevice("vta", local), Listen("127.0.0.1:0", TOKEN), "sim")
        try:
            await scenario(await server.start())
        finally:
            await server.close()
            await server.close()

    asyncio.run(run())


def test_bytes_held_for_clients_are_limited_and_freed_with_the_session(tmp_path, monkeypatch):
    monkeypatch.setattr(served, "MAX_HELD", 1000)
    monkeypatch.setattr(served, "MAX_MODULES", 2)

    async def scenario(address):
        line = Connection(address, settings())

        async def upload(session, data):
            await line.call("Upload", {"session": session, "digest": sha256(data).hexdigest()}, data)

        async def hello():
            return (await line.call("Hello", {"client": "x", "lease": 5.0}))[0]["session"]

        first, second = await hello(), await hello()
        await upload(first, b"a" * 600)
        await upload(first, b"a" * 600)  # twice is once
        with pytest.raises(Busy, match="a worker must hold at most 1000 bytes for its clients, but got 1200"):
            await upload(second, b"b" * 600)
        await line.call("Close", {"session": first})
        await upload(second, b"b" * 600)
        await upload(second, b"c")
        with pytest.raises(Busy, match="a session must have at most 2 modules"):
            await upload(second, b"d")

    with_server(tmp_path, scenario)


def test_an_output_that_is_too_large_to_travel_is_an_error_of_that_trial(tmp_path, monkeypatch):
    monkeypatch.setattr(served, "MAX_MESSAGE", served._ROOM + 15)

    async def scenario(address):
        device = await RpcDevice.connect(address, settings(), "client")
        tried = trial(options={"target": "vta"})  # 16 bytes
        answer = await device.run(tried, module(tried), None)
        assert answer.error is ErrorClass.unknown
        assert "an output must have at most 15 bytes to travel, but got 16" in answer.header["message"]
        await device.close()

    with_server(tmp_path, scenario)


def test_a_session_ends_with_its_lease_and_lives_by_its_calls(tmp_path):
    async def scenario(address):
        line = Connection(address, settings())
        session = (await line.call("Hello", {"client": "x", "lease": 0.4}))[0]["session"]
        for _ in range(4):
            await asyncio.sleep(0.2)
            await line.call("Renew", {"session": session})
        await asyncio.sleep(0.8)
        with pytest.raises(UnknownSubject, match="the session is not known here"):
            await line.call("Renew", {"session": session})

    with_server(tmp_path, scenario)


def test_two_servers_do_not_share_a_port(tmp_path):
    async def scenario(address):
        local = LocalSettings(executor=EXECUTOR, host_lock=str(tmp_path / "other.lock"))
        second = RpcServer(LocalDevice("vta", local), Listen(address, TOKEN))
        with pytest.raises(PoolError, match="`listen` must be an address to be had, but got 127.0.0.1"):
            await second.start()
        await second.close()

    with_server(tmp_path, scenario)
