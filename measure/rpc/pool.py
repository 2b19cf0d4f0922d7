"""The pool of RPC devices: builds run here, kernels run remotely."""

from __future__ import annotations

from collections.abc import Sequence

from measure.errors import PoolError
from measure.fleet.local import LocalBuilders
from measure.fleet.pool import FleetPool
from measure.fleet.scheduler import FleetSettings
from measure.rpc.provider import RpcProvider
from measure.rpc.settings import RpcAddress, RpcSettings, parse_addresses, read_certificates, read_token
from measure.settings import LocalSettings


class RpcPool(FleetPool):
    """A pool that builds on this host and runs on the devices of workers and trackers.

    Args:
        addresses: addresses of workers and trackers.
        settings: token, patience.
        fleet: settings of the scheduler.
        local: settings of the builders.
    """

    def __init__(
        self,
        addresses: Sequence[RpcAddress],
        settings: RpcSettings,
        fleet: FleetSettings | None = None,
        local: LocalSettings | None = None,
    ) -> None:
        super().__init__([LocalBuilders(settings=local), RpcProvider(addresses, settings)], fleet)

    @classmethod
    def of(cls, spec: str, token_file: str | None = None, tls_ca: str | None = None) -> RpcPool:
        """Makes the pool of `rpc://HOST:PORT?key=NAME`, see `settings.parse_addresses`.

        Args:
            spec: addresses.
            token_file: file with the token of all of them.
            tls_ca: PEM file of certificates that sign those of the servers; None: connections are not encrypted.

        Raises:
            ValueError: `spec` is not of this form.
            PoolError: `token_file` is None, or a file cannot be read.
        """
        addresses = parse_addresses(spec)
        if token_file is None:
            raise PoolError("`token_file` must name a file with the token of the RPC devices, but got token_file=None")
        certificates = None if tls_ca is None else read_certificates(tls_ca, "tls_ca")
        return cls(addresses, RpcSettings(read_token(token_file), certificates))
