"""Processes of a worker and of a tracker: they serve until a signal ends them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from measure.errors import PoolError
from measure.fleet.local import LocalDevice
from measure.rpc.protocol import ProtocolError, get
from measure.rpc.server import RpcServer
from measure.rpc.service import Listen, ending
from measure.rpc.settings import RpcSettings
from measure.rpc.tracker import Tracker
from measure.rpc.transport import Busy, CallError, Connection, Unreachable

log = logging.getLogger(__name__)

_RETRY = 1.0  # seconds between registrations while the tracker does not answer
_WILDCARDS = ("0.0.0.0", "[::]", "*")


async def serve_device(
    device: LocalDevice,
    listen: Listen,
    key: str = "",
    tracker: str | None = None,
    announce: str | None = None,
    settings: RpcSettings | None = None,
    say: Callable[[str], None] = print,
) -> None:
    """Serves a device until the process gets SIGTERM or SIGINT.

    Args:
        device: device to serve.
        listen: address and credentials of the server.
        key: key by which clients ask for the device.
        tracker: `HOST:PORT` of a tracker to register at, or None.
        announce: `HOST:PORT` by which clients reach the device; None: the address that it listens on, or that the
            tracker sees.
        settings: token and certificates of the tracker; None: the token of `listen`.
        say: function that is called with one line when it serves.

    Raises:
        PoolError: the address is not available, the device cannot work, or the tracker refuses it.
    """
    stop = ending()
    server = RpcServer(device, listen, key)
    try:
        address = await server.start()
        say(f"serving {device.spec}{f' as {key}' if key else ''} on {address}")
        duties: list[Coroutine[Any, Any, Any]] = [stop.wait()]
        if tracker is not None:
            settings = settings or RpcSettings(listen.token)
            duties.append(_register(Connection(tracker, settings), server.instance, key, announce or address))
        tasks = [asyncio.ensure_future(duty) for duty in duties]
        done, others = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        for task in done:
            task.result()
    finally:
        await server.close()


async def serve_tracker(listen: Listen, lease: float = 10.0, say: Callable[[str], None] = print) -> None:
    """Serves a tracker until the process gets SIGTERM or SIGINT.

    Args:
        listen: address and credentials of the server.
        lease: seconds after which silent workers and clients are forgotten.
        say: function that is called with one line when it serves.

    Raises:
        PoolError: the address is not available.
    """
    stop = ending()
    tracker = Tracker(listen, lease)
    try:
        say(f"tracking devices on {await tracker.start()}")
        await stop.wait()
    finally:
        await tracker.close()


async def _register(connection: Connection, instance: str, key: str, address: str) -> None:
    """Keeps a device registered; tries again while the tracker does not answer.

    Raises:
        PoolError: the tracker refuses this worker.
    """
    host, _, port = address.rpartition(":")
    entry = {"instance": instance, "key": key, "host": "" if host in _WILDCARDS else host, "port": int(port)}
    silent = False
    try:
        while True:
            try:
                reply, _ = await connection.call("Register", entry)
                pause, silent = get(reply, "lease", float) / 3, False
            except (Unreachable, Busy) as error:
                if not silent:
                    log.warning("the tracker is away: %s", error)
                pause, silent = _RETRY, True
            except (CallError, ProtocolError) as error:
                raise PoolError(f"`tracker` must be a tracker that knows us, but {error}") from None
            await asyncio.sleep(pause)
    finally:
        with suppress(CallError):
            await connection.call("Withdraw", {"instance": instance}, timeout=1.0)
        connection.close()
