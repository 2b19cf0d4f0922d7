"""Kinds of devices that Ray actors are made for. A new kind is a line here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from measure.host import allowed_cores


@dataclass(frozen=True)
class DeviceKind:
    """Devices of one kind; a node offers them as the custom resource `autotune_NAME`, one unit a device.

    Attributes:
        targets: names of the targets whose modules they run.
        exclusive: whether their timings are disturbed by work beside them on the same host.
        local_count: how many this host offers where Ray is started by itself.
        options: what else an actor asks of Ray, such as `{"num_gpus": 1}`.
    """

    targets: frozenset[str]
    exclusive: bool
    local_count: Callable[[], int]
    options: Mapping[str, Any] = field(default_factory=dict)


KINDS: dict[str, DeviceKind] = {
    "cpu": DeviceKind(frozenset({"cpu"}), exclusive=True, local_count=lambda: 1),
    "vta": DeviceKind(frozenset({"vta"}), exclusive=False, local_count=lambda: len(allowed_cores())),
}
"""Name -> kind."""

FRONT = "autotune_rpc"
"""Resource of nodes from which RPC devices can be reached; an actor that fronts some takes one unit."""


def resource_of(name: str) -> str:
    """Ray's custom resource of the kind called `name`."""
    return f"autotune_{name}"


def local_resources() -> dict[str, float]:
    """Custom resources of this host, where Ray is started by itself."""
    return {**{resource_of(name): float(kind.local_count()) for name, kind in KINDS.items()}, FRONT: 64.0}
