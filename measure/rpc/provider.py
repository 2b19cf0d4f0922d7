"""Provider of the devices of workers and trackers: connects, and reconnects when they come back."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any

from measure.errors import PoolError
from measure.fleet.scheduler import Fleet
from measure.notices import WaitNotice
from measure.rpc.client import RpcDevice
from measure.rpc.jobs import greet, read_greeting
from measure.rpc.protocol import MAX_LEASE, MAX_NAME, MAX_WAIT, get
from measure.rpc.settings import RpcAddress, RpcSettings, check_place
from measure.rpc.transport import Busy, CallError, Connection, Unreachable
from search_space.operators.checks import nearest

log = logging.getLogger(__name__)

_PAUSES = (0.1, 0.5, 1.0, 2.0, 5.0)
"""Seconds before the next attempt with a device that was lost within `_SOON` seconds, by number of such losses."""
_SOON = 10.0  # seconds within which a loss counts as soon, see `_PAUSES`
_SHOWN_KEYS = 20
"""Maximum number of a tracker's keys that are shown."""


class RpcProvider:
    """A provider of the devices at some addresses, each of a worker or of a tracker.

    Args:
        addresses: addresses of workers and trackers, and the devices wanted of them.
        settings: token, patience.
    """

    def __init__(self, addresses: Sequence[RpcAddress], settings: RpcSettings) -> None:
        self.addresses, self.settings = tuple(addresses), settings
        self.client = uuid.uuid4().hex
        self.refused_addresses: set[str] = set()  # addresses of refused workers, even under new names
        self._was_reached = self._has_joined = False
        self._absent: dict[tuple[str, str], float] = {}  # (place, key) without a device → since when

    async def provide(self, fleet: Fleet) -> None:
        """Keeps devices joined until it is cancelled.

        Raises:
            PoolError: a server refuses this client, or no server has answered within `settings.connect_timeout`.
        """
        await _all(*(self._serve(fleet, address) for address in self.addresses))

    async def _serve(self, fleet: Fleet, address: RpcAddress) -> None:
        """Keeps the devices of one address joined."""
        losses = 0
        while address.address not in self.refused_addresses:
            connection = Connection(address.address, self.settings)
            joined = time.monotonic()
            try:
                reply = await self._greet(connection, address)
                if reply["role"] == "tracker":
                    lease = min(max(get(reply, "lease", float), 0.1), MAX_LEASE)
                    await _Leases(self, fleet, address, connection, lease).keep()
                else:
                    await self._join(fleet, address, connection, reply)
            finally:
                connection.close()
            losses = losses + 1 if time.monotonic() - joined < _SOON else 0
            await asyncio.sleep(_PAUSES[min(losses, len(_PAUSES) - 1)])
        await asyncio.Event().wait()  # this address has no usable device any more

    async def _greet(self, connection: Connection, address: RpcAddress) -> Mapping[str, Any]:
        start, warned, patience = time.monotonic(), False, WaitNotice()
        while True:
            try:
                reply = await greet(connection, self.settings)
            except (Unreachable, Busy) as error:
                late = time.monotonic() - start > self.settings.connect_timeout
                limit = f"{self.settings.connect_timeout:g} s"
                if late and not self._was_reached:
                    rule = "`pool` must name a worker or tracker that answers"
                    raise PoolError(f"{rule}, but {address.address} did not within {limit}: {error}") from None
                if late and not warned:
                    warned = True
                    log.warning("%s has not answered for %s, and is tried again: %s", address.address, limit, error)
                patience.still(f"a worker or tracker at {address.address}, at most {limit}: {error}")
                await asyncio.sleep(self.settings.retry_pause)
            else:
                self._was_reached = True
                return reply

    async def _join(self, fleet: Fleet, address: RpcAddress, connection: Connection, reply: Mapping[str, Any]) -> None:
        """Keeps a device joined until it is lost."""
        greeting = read_greeting(reply)
        if address.keys and greeting.key not in address.keys:
            raise PoolError(
                f"`key` must be that of the worker, {greeting.key!r} at {address.address}, "
                f"but got key={', '.join(address.keys)}"
            )
        device = RpcDevice(address.address, greeting, self.settings, address.check, connection)
        self.join(fleet, device)
        await fleet.left(device)
        if fleet.is_refused(device):
            self.refused_addresses.add(address.address)

    def join(self, fleet: Fleet, device: RpcDevice) -> None:
        """Adds a device to the fleet."""
        self._has_joined = True
        fleet.join(device)

    def note_keys(self, fleet: Fleet, address: str, key: str, keys: Sequence[str] | None) -> None:
        """Notes that a tracker has no device of a wanted key, but devices of the keys `keys`; None: it has one.

        Raises:
            PoolError: trackers have had devices for `settings.patience` seconds, but none of any wanted key, and no
                device has ever joined.
        """
        source, now = (address, key), time.monotonic()
        if keys is None:
            fleet.lacks.pop(f"{address} {key}", None)
            self._absent.pop(source, None)
            return
        available = f"devices of key={', '.join(keys)} alone" if keys else "no device"
        wanted = f", and key={key} is asked for" if key else ""
        fleet.lacks[f"{address} {key}"] = f"the tracker at {address} has {available}{wanted}"
        if not keys:
            self._absent.pop(source, None)  # devices may be about to register
            return
        self._absent.setdefault(source, now)
        asked = sum(len(address.keys) or 1 for address in self.addresses)
        late = now - max(self._absent.values()) >= self.settings.patience
        if late and not self._has_joined and len(self._absent) == asked:
            raise PoolError(
                f"`key` must be one that the tracker at {address} has, {', '.join(keys)}, "
                f"but got key={key}{nearest(key, keys)}"
            )


class _Leases:
    """Devices that a tracker has leased to this client.

    Args:
        provider: provider of the devices.
        fleet: fleet that they join.
        address: address of the tracker, and the devices wanted of it.
        connection: connection to the tracker.
        lease: seconds after which the tracker takes the devices of a silent client back.
    """

    def __init__(
        self, provider: RpcProvider, fleet: Fleet, address: RpcAddress, connection: Connection, lease: float
    ) -> None:
        self._provider, self._fleet, self._address = provider, fleet, address
        self._connection, self._lease = connection, lease
        self._settings = provider.settings
        self._devices: dict[str, RpcDevice | None] = {}  # lease -> device, once it is connected
        self._tasks: set[asyncio.Task[None]] = set()

    async def keep(self) -> None:
        """Asks for devices and keeps them, until it is cancelled."""
        try:
            await _all(self._renew(), *(self._ask(key) for key in self._address.keys or ("",)))
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _ask(self, key: str) -> None:
        """Asks for one device after another."""
        request = uuid.uuid4().hex
        wait = min(MAX_WAIT, max(self._lease / 2, 0.1))
        wish = {"client": self._provider.client, "key": key, "priority": self._address.priority}
        patient = False  # the first answer comes at once, to detect an unknown key early
        while True:
            try:
                limit = wait + self._settings.call_timeout
                header = {**wish, "wait": wait if patient else 0.0, "request": request}
                reply, _ = await self._connection.call("Ask", header, timeout=limit)
            except (Unreachable, Busy):
                await asyncio.sleep(self._settings.retry_pause)
                continue
            except CallError as error:
                raise PoolError(f"a tracker must give out devices, but {error}") from None
            patient = True
            keys = None if "keys" not in reply else [str(k)[:MAX_NAME] for k in get(reply, "keys", list)[:_SHOWN_KEYS]]
            self._provider.note_keys(self._fleet, self._address.address, key, keys)
            if "lease" in reply and (lease := get(reply, "lease", str)) not in self._devices:
                self._devices[lease] = None
                task = asyncio.create_task(self._use(lease, get(reply, "place", str)))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
                request = uuid.uuid4().hex

    async def _use(self, lease: str, address: str) -> None:
        """Keeps a device joined until it is lost, and then releases the lease."""
        broken = False
        try:
            if address in self._provider.refused_addresses:
                raise PoolError("it was not believed")
            check_place(address, "place")  # the tracker's answer is not trusted
            device = await RpcDevice.connect(address, self._settings, self._address.check)
            self._devices[lease] = device
            self._provider.join(self._fleet, device)
            await self._fleet.left(device)
            if self._fleet.is_refused(device):
                self._provider.refused_addresses.add(address)
            broken = not device.is_recalled or address in self._provider.refused_addresses
        except (CallError, PoolError, ValueError) as error:
            report = log.debug if address in self._provider.refused_addresses else log.warning
            report("%s cannot be used: %s", address, error)
            broken = True
        finally:
            self._devices.pop(lease, None)
            with suppress(CallError):  # if this fails, the lease expires
                await self._connection.call("Release", {"lease": lease, "broken": broken}, timeout=1.0)

    async def _renew(self) -> None:
        """Extends the leases, and releases devices that the tracker recalls."""
        while True:
            await asyncio.sleep(self._lease / 3)
            if not self._devices:
                continue
            with suppress(CallError):  # retried at the next turn; devices do not need the tracker
                names = {"client": self._provider.client, "leases": list(self._devices)}
                reply, _ = await self._connection.call("Renew", names)
                for lease in (*get(reply, "recalled", list), *get(reply, "lost", list)):
                    self._give_back(str(lease))

    def _give_back(self, lease: str) -> None:
        """Releases a device after its current trial."""
        device = self._devices.get(lease)
        if device is None or device.is_recalled:
            return
        device.is_recalled = True
        task = asyncio.create_task(self._leave(device))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _leave(self, device: RpcDevice) -> None:
        await device.idle.wait()
        self._fleet.leave(device)


async def _all(*coroutines: Coroutine[Any, Any, None]) -> None:
    """Runs coroutines concurrently until one raises, which cancels the others."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
