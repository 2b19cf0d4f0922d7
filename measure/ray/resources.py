"""Ray's resources by which devices of a target are found, and which their actors hold."""

from __future__ import annotations

from typing import Any

from measure.host import allowed_cores
from targets import registry

RPC = "autotune_rpc"
"""Resource of nodes from which RPC devices can be reached; a proxy actor takes one unit."""

_OPTIONS = {"CPU": "num_cpus", "GPU": "num_gpus"}
"""What actors ask for Ray's own resources by."""


def resource_of(name: str) -> str:
    """Of the devices of the target called `name`, a unit each."""
    return registry.get(name).ray_resource or f"autotune_{name}"


def demand_of(name: str) -> dict[str, Any]:
    """What an actor that is a device of the target called `name` asks of Ray."""
    resource = resource_of(name)
    return {_OPTIONS[resource]: 1} if resource in _OPTIONS else {"resources": {resource: 1}}


def local_resources() -> dict[str, float]:
    """Custom resources of this host, where Ray is started by itself, which counts its own.

    Of what is simulated it offers a device on each core, as one disturbs no other; of all else one.
    """
    found = {RPC: 64.0}
    for name in registry.TARGETS:
        target = registry.get(name)
        if not target.ray_resource:
            found[resource_of(name)] = float(len(allowed_cores())) if target.simulated else 1.0
    return found
