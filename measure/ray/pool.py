"""The measuring pool on Ray."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Self

from measure.errors import PoolError
from measure.fleet.pool import FleetPool
from measure.fleet.scheduler import FleetSettings
from measure.ray.provider import RayProvider
from measure.ray.settings import ProxySettings, RaySettings


class RayPool(FleetPool):
    """A pool that measures trials by Ray actors.

    Args:
        address: address of a cluster, `auto` or `HOST:PORT`; None: a Ray is started on this host and ends with the
            pool.
        settings: settings of the actors.
        proxy: RPC devices to run on, in place of the nodes' own devices; None: the nodes' own.
        fleet: settings of the scheduler.
    """

    def __init__(
        self,
        address: str | None = None,
        settings: RaySettings | None = None,
        proxy: ProxySettings | None = None,
        fleet: FleetSettings | None = None,
    ) -> None:
        super().__init__([RayProvider(address, settings, proxy)], fleet)

    def __enter__(self) -> Self:
        """Starts Ray, which takes seconds, in parallel with the caller's preparations."""
        self._start()
        return super().__enter__()

    @classmethod
    def of(cls, spec: str, token_file: str | None = None, tls_ca: str | None = None) -> RayPool:
        """Makes the pool of a specification, see `ray_pool`."""
        return ray_pool(spec, token_file, tls_ca)


def ray_pool(
    spec: str, token_file: str | os.PathLike[str] | None = None, ca: str | os.PathLike[str] | None = None
) -> RayPool:
    """Makes the pool of `ray`, `ray:ADDRESS`, `ray+rpc://...` or `ray:ADDRESS+rpc://...`.

    Args:
        spec: specification; ADDRESS is `auto` or `HOST:PORT` of a cluster; the RPC devices behind actors are named as
            in `measure.rpc.settings.parse_addresses`.
        token_file: file with the token of the RPC devices.
        ca: PEM file of certificates that sign those of the devices; None: connections are not encrypted.

    Raises:
        ValueError: `spec` is not of this form.
        PoolError: RPC devices without a token, or certificates that cannot be read.
    """
    ours, plus, addresses = spec.partition("+")
    name, colon, address = ours.partition(":")
    if name != "ray" or (colon and not _is_address(address)) or (plus and not addresses):
        rule = "ray[:ADDRESS][+rpc://HOST:PORT], ADDRESS being auto or HOST:PORT"
        raise ValueError(f"`pool` must be {rule}, but got pool={spec!r}")
    return RayPool(address or None, proxy=_proxy(addresses, token_file, ca) if plus else None)


def _is_address(text: str) -> bool:
    host, _, port = text.rpartition(":")
    return text == "auto" or (bool(host) and "/" not in host and port.isdecimal() and 0 < int(port) < 1 << 16)


def _proxy(
    addresses: str, token_file: str | os.PathLike[str] | None, ca: str | os.PathLike[str] | None
) -> ProxySettings:
    from measure.rpc.settings import RpcSettings, parse_addresses, read_certificates, read_token

    parse_addresses(addresses)
    if token_file is None:
        raise PoolError("`token_file` must name a file with the token of the RPC devices, but got token_file=None")
    settings = RpcSettings(read_token(token_file), None if ca is None else read_certificates(ca, "tls_ca"))
    return ProxySettings(addresses, asdict(settings))
