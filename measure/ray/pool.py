"""The measuring pool on Ray."""

from __future__ import annotations

from measure.fleet.pool import FleetPool
from measure.fleet.scheduler import FleetSettings
from measure.ray.provider import RayProvider
from measure.ray.settings import RaySettings


class RayPool(FleetPool):
    """Measures trials by Ray actors.

    Args:
        address: of a cluster, `auto` or `HOST:PORT`; None: a Ray is started on this host and ends with the pool.
        settings: of the actors.
        fleet: of their scheduler.
    """

    def __init__(
        self, address: str | None = None, settings: RaySettings | None = None, fleet: FleetSettings | None = None
    ) -> None:
        super().__init__([RayProvider(address, settings)], fleet)
