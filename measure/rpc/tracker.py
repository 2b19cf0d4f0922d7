"""The tracker: devices register under keys; clients ask by key and priority and get leases, which expire."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from measure.rpc.protocol import MAX_WAIT, ProtocolError
from measure.rpc.service import Full, Handler, Listen, Request, Service
from measure.rpc.settings import check_key, check_place

log = logging.getLogger(__name__)

MAX_DEVICES = 10_000
"""Maximum number of registered devices."""
MAX_KEYS = 50
"""Maximum number of keys that a reply lists if the wanted key is not among them."""
MAX_REQUESTS = 10_000
"""Maximum number of waiting requests."""
MAX_HOST_REQUESTS = 2500
"""Maximum number of requests of clients on one host, so that no host keeps all others out."""

Reply = tuple[Mapping[str, Any], bytes]


@dataclass(eq=False)
class _Device:
    """A worker that has registered."""

    instance: str
    key: str
    address: str
    expires: float  # monotonic seconds
    lease: _Lease | None = None
    broken: bool = False  # reported by its last client; reset when it registers again
    freed_at: float = 0.0  # monotonic seconds


@dataclass(eq=False)
class _Lease:
    """A device lent to a client."""

    name: str
    device: _Device
    client: str
    priority: int
    expires: float
    recalled: bool = False


@dataclass(eq=False)
class _Wish:
    """A client that waits for a device."""

    client: str
    host: str
    key: str
    priority: int
    expires: float
    recalls: _Lease | None = None  # lease that was recalled for it
    grant: asyncio.Event = field(default_factory=asyncio.Event)
    lease: _Lease | None = None


class Tracker(Service):
    """A server that lends devices to clients.

    The highest priority is served first, equal ones in the order of asking. If no device is free, one is recalled. It
    comes from a client of lower priority, or of the same priority with at least two more devices than the asker.

    Args:
        listen: address and credentials.
        lease: seconds after which a silent worker is forgotten and a silent client's devices are free again.
    """

    def __init__(self, listen: Listen, lease: float = 10.0) -> None:
        if not lease > 0:
            raise ValueError(f"`lease` must be positive, but got lease={lease}")
        self.lease = lease
        self._devices: dict[str, _Device] = {}  # instance -> device
        self._leases: dict[str, _Lease] = {}
        self._wishes: dict[str, _Wish] = {}  # request -> wish, in the order of asking
        handlers: dict[str, Handler] = {
            "Hello": self._hello,
            "Register": self._register,
            "Withdraw": self._withdraw,
            "Ask": self._ask,
            "Renew": self._renew,
            "Release": self._release,
        }
        super().__init__(listen, handlers, min(0.2, lease / 10))

    async def _hello(self, request: Request) -> Reply:
        return {"role": "tracker", "lease": self.lease}, b""

    async def _register(self, request: Request) -> Reply:
        instance, port = request.get("instance", str), request.get("port", int)
        host, key = request.get("host", str) or request.host, request.get("key", str)
        if not host:
            raise ProtocolError(f"`host` must be given by a worker whose address is not seen, but got {request.peer!r}")
        try:
            address = check_place(f"{host}:{port}", "host:port")
            check_key(key or "any")
        except ValueError as error:
            raise ProtocolError(str(error)) from None
        device = self._devices.get(instance)
        if device is None:
            if len(self._devices) >= MAX_DEVICES:
                raise Full(f"a tracker must have at most {MAX_DEVICES} devices, but got one more")
            for other in [other for other in self._devices.values() if other.address == address]:
                self._forget(other)  # the worker was restarted
            device = self._devices[instance] = _Device(instance, key, address, 0.0)
            log.info("%s registers as %r", address, device.key)
        device.expires = time.monotonic() + self.lease
        device.broken = False
        self._match()
        return {"lease": self.lease}, b""

    async def _withdraw(self, request: Request) -> Reply:
        device = self._devices.get(request.get("instance", str))
        if device is not None:
            self._forget(device)
        return {}, b""

    async def _ask(self, request: Request) -> Reply:
        name, now = request.get("request", str), time.monotonic()
        wish = self._wishes.get(name)
        if wish is None:
            if len(self._wishes) >= MAX_REQUESTS:
                raise Full(f"a tracker must have at most {MAX_REQUESTS} requests, but got one more")
            if sum(wish.host == request.host for wish in self._wishes.values()) >= MAX_HOST_REQUESTS:
                raise Full(f"a tracker must have at most {MAX_HOST_REQUESTS} requests of one host, but got one more")
            key, priority = request.get("key", str), request.get("priority", int)
            wish = self._wishes[name] = _Wish(request.get("client", str), request.host, key, priority, now)
        wait = min(max(request.get("wait", float), 0.0), MAX_WAIT)
        wish.expires = now + wait + self.lease
        self._match()
        with suppress(TimeoutError):
            await asyncio.wait_for(wish.grant.wait(), wait)
        if wish.lease is None:
            keys = sorted({device.key for device in self._devices.values()})
            fits = bool(keys) and wish.key in ("", *keys)
            return {} if fits else {"keys": keys[:MAX_KEYS]}, b""
        wish.lease.expires = time.monotonic() + self.lease
        return {"lease": wish.lease.name, "place": wish.lease.device.address}, b""

    async def _renew(self, request: Request) -> Reply:
        names = request.get("leases", list)
        if not all(isinstance(name, str) for name in names):
            raise ProtocolError("`leases` must be names of leases, but got others")
        known = [self._leases[name] for name in names if name in self._leases]
        for lease in known:
            lease.expires = time.monotonic() + self.lease
        recalled = [lease.name for lease in known if lease.recalled]
        return {"recalled": recalled, "lost": [name for name in names if name not in self._leases]}, b""

    async def _release(self, request: Request) -> Reply:
        lease = self._leases.get(request.get("lease", str))
        if lease is not None:
            lease.device.broken = request.get("broken", bool)
            self._end(lease)
            self._match()
        return {}, b""

    def _match(self) -> None:
        """Assigns free devices to waiting clients, and recalls devices for clients that have a claim to one."""
        waiting = [wish for wish in self._wishes.values() if wish.lease is None]
        for wish in sorted(waiting, key=lambda wish: -wish.priority):  # stable: in the order of asking
            fitting = [device for device in self._devices.values() if wish.key in ("", device.key)]
            free = [device for device in fitting if device.lease is None and not device.broken]
            if free:
                device = min(free, key=lambda device: device.freed_at)
                expires = time.monotonic() + self.lease
                lease = _Lease(uuid.uuid4().hex, device, wish.client, wish.priority, expires)
                device.lease = wish.lease = self._leases[lease.name] = lease
                wish.grant.set()
                log.info("%s goes to %s", device.address, wish.client)
            elif wish.recalls is None or wish.recalls.name not in self._leases:
                wish.recalls = self._recall(wish, [device.lease for device in fitting if device.lease is not None])

    def _recall(self, wish: _Wish, leases: list[_Lease]) -> _Lease | None:
        """Asks the client with the lowest priority and the most devices to return one; returns its lease, or None."""
        counts: dict[str, int] = {}
        for lease in leases:
            counts[lease.client] = counts.get(lease.client, 0) + (not lease.recalled)
        mine = counts.get(wish.client, 0)
        others = [
            lease
            for lease in leases
            if not lease.recalled
            and lease.client != wish.client
            and (
                lease.priority < wish.priority or (lease.priority == wish.priority and counts[lease.client] >= mine + 2)
            )
        ]
        if not others:
            return None
        lease = min(others, key=lambda lease: (lease.priority, -counts[lease.client]))
        lease.recalled = True
        log.info("%s is recalled from %s for %s", lease.device.address, lease.client, wish.client)
        return lease

    def _end(self, lease: _Lease) -> None:
        del self._leases[lease.name]
        lease.device.lease, lease.device.freed_at = None, time.monotonic()
        for name in [name for name, wish in self._wishes.items() if wish.lease is lease]:
            del self._wishes[name]

    def _forget(self, device: _Device) -> None:
        del self._devices[device.instance]
        if device.lease is not None:
            self._end(device.lease)

    def expire(self) -> None:
        """Forgets workers and clients whose lease has run out."""
        now = time.monotonic()
        for device in [device for device in self._devices.values() if device.expires < now]:
            log.info("%s is silent", device.address)
            self._forget(device)
        for lease in [lease for lease in self._leases.values() if lease.expires < now]:
            log.info("%s is taken back from %s", lease.device.address, lease.client)
            self._end(lease)
        for name in [name for name, wish in self._wishes.items() if wish.lease is None and wish.expires < now]:
            del self._wishes[name]
        self._match()
