"""Ray actors that are proxies of other machines, such as RPC devices: a provider's endpoints, used through Ray.

The actor runs on a node from which those machines can be reached; the driver need not reach them.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from measure.errors import PoolError
from measure.fleet.endpoint import Device, EndpointLost, EndpointRefused
from measure.pool import Trial
from measure.ray.actors import Jobs
from measure.supervisor import Answer
from measure.wire import pack, unpack

if TYPE_CHECKING:
    from measure.fleet.scheduler import Fleet, Provider

_LOOK = 5.0
"""Seconds after which a call of `devices` returns even without a change."""


class ProxiedFleet:
    """Fleet for the provider inside the actor: it holds devices, and gives them no work by itself."""

    def __init__(self) -> None:
        self.devices: dict[int, Device] = {}
        self.change_event = asyncio.Event()
        self._numbers = itertools.count()
        self._departures: dict[Device, asyncio.Event] = {}
        self._refused_devices: set[Device] = set()
        self._closing: set[asyncio.Task[None]] = set()

    def join(self, device: Device) -> None:
        """Adds a device."""
        self.devices[next(self._numbers)] = device
        self._departures[device] = asyncio.Event()
        self._notify()

    def leave(self, device: Device) -> None:
        """Removes and closes a device; does nothing if it has left before."""
        gone = self._departures.pop(device, None)
        if gone is None:
            return
        self.devices = {number: other for number, other in self.devices.items() if other is not device}
        gone.set()
        task = asyncio.get_running_loop().create_task(device.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
        self._notify()

    def refuse(self, device: Device) -> None:
        """Removes a device for good that gave an impossible answer."""
        self._refused_devices.add(device)
        self.leave(device)

    def is_refused(self, device: Device) -> bool:
        """Tells whether a device was refused."""
        return device in self._refused_devices

    async def left(self, device: Device) -> None:
        """Waits until a device has left."""
        if device in self._departures:
            await self._departures[device].wait()

    def _notify(self) -> None:
        self.change_event.set()
        self.change_event = asyncio.Event()


class ProxyActor(Jobs):
    """An actor that serves the devices that a provider of RPC devices brings.

    Args:
        addresses: `rpc://...`, see `measure.rpc.settings.parse_addresses`.
        settings: fields of `RpcSettings`.
    """

    def __init__(self, addresses: str, settings: Mapping[str, Any]) -> None:
        super().__init__()
        self._addresses, self._settings = addresses, settings
        self._fleet = ProxiedFleet()
        self._provider: asyncio.Task[None] | None = None

    async def devices(self, numbers: list[int]) -> dict[str, Any]:
        """Returns the devices to serve: at once if they differ from what the caller knows, else after some seconds.

        Args:
            numbers: numbers of the devices that the caller knows.

        Returns:
            `devices`, number -> plain facts of a device; or `fault`, the reason why there can be no device.
        """
        if self._provider is None:
            from measure.rpc.provider import RpcProvider
            from measure.rpc.settings import RpcSettings, parse_addresses

            provider: Provider = RpcProvider(parse_addresses(self._addresses), RpcSettings(**self._settings))
            self._provider = asyncio.create_task(provider.provide(cast("Fleet", self._fleet)))
        if list(self._fleet.devices) == numbers and not self._provider.done():
            news = asyncio.create_task(self._fleet.change_event.wait())
            await asyncio.wait({news, self._provider}, timeout=_LOOK, return_when=asyncio.FIRST_COMPLETED)
            news.cancel()
        if self._provider.done():
            try:
                self._provider.result()
            except PoolError as error:
                return {"fault": str(error)}
        return {"devices": {number: _facts(device) for number, device in self._fleet.devices.items()}}

    async def work(self, frame: bytes) -> bytes:
        """Runs a trial on the device that the header's `device` names; see `measure.ray.actors.Actor.work`.

        Returns:
            See `Jobs.perform`.
        """
        request, module = unpack(frame)
        device = self._fleet.devices.get(request["device"])
        if device is None:
            return pack({"lost": "it has left"})
        return await self.perform(request["job"], self._run(device, request, module))

    async def _run(self, device: Device, request: Mapping[str, Any], module: bytes) -> Answer:
        try:
            return await device.run(Trial.from_json(request["trial"]), module, request["best_seconds"])
        except EndpointRefused:
            self._fleet.refuse(device)
            raise
        except EndpointLost:
            self._fleet.leave(device)
            raise

    async def drop(self, number: int) -> None:
        """Releases a device; the provider may bring it again."""
        device = self._fleet.devices.get(number)
        if device is not None:
            self._fleet.leave(device)


def _facts(device: Device) -> dict[str, Any]:
    return {
        "name": device.name,
        "host": device.host,
        "targets": sorted(device.targets),
        "exclusive": device.exclusive,
        "description": dict(device.description),
    }
