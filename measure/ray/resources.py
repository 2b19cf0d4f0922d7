"""Ray's resources that stand for devices of a target; actors of devices hold them."""

from __future__ import annotations

from typing import Any

from measure.host import allowed_cores
from targets import registry

RPC = "autotune_rpc"
"""Resource of nodes from which RPC devices can be reached; a proxy actor takes one unit."""

_OPTIONS = {"CPU": "num_cpus", "GPU": "num_gpus"}
"""Options of Ray's actors that request its own resources."""


def resource_name(name: str) -> str:
    """Returns the resource of which each device of the target called `name` takes one unit."""
    return registry.get(name).ray_resource or f"autotune_{name}"


def ray_demand(name: str) -> dict[str, Any]:
    """Returns the actor options that request one device of the target called `name`."""
    resource = resource_name(name)
    return {_OPTIONS[resource]: 1} if resource in _OPTIONS else {"resources": {resource: 1}}


def local_resources() -> dict[str, float]:
    """Returns the custom resources of this host for a Ray that is started here; Ray counts its own by itself.

    Simulated targets have a device on each core, as simulations do not disturb each other; other targets have one.
    """
    amounts = {RPC: 64.0}
    for name in registry.TARGETS:
        target = registry.get(name)
        if not target.ray_resource:
            amounts[resource_name(name)] = float(len(allowed_cores())) if target.simulated else 1.0
    return amounts
