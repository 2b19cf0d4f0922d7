"""Kinds of devices that Ray actors are made for. A new kind is a line here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from measure.host import allowed_cores


@dataclass(frozen=True)
class DeviceKind:
    """Devices of one kind; a node offers them as the custom resource `autotune_NAME`, or one of Ray's own, a unit each.

    Attributes:
        targets: names of the targets whose modules they run.
        exclusive: whether their timings are disturbed by work beside them on the same host.
        local_count: how many this host offers where Ray is started by itself; of Ray's own it counts them.
        options: what else an actor asks of Ray.
        native: name of Ray's own resource, for which an actor asks by `options`.
    """

    targets: frozenset[str]
    exclusive: bool
    local_count: Callable[[], int]
    options: Mapping[str, Any] = field(default_factory=dict)
    native: str = ""


KINDS: dict[str, DeviceKind] = {
    "cpu": DeviceKind(frozenset({"cpu", "c"}), exclusive=True, local_count=lambda: 1),
    "cuda": DeviceKind(frozenset({"cuda"}), True, local_count=lambda: 0, options={"num_gpus": 1}, native="GPU"),
    "vta": DeviceKind(frozenset({"vta"}), exclusive=False, local_count=lambda: len(allowed_cores())),
}
"""Name -> kind."""

FRONT = "autotune_rpc"
"""Resource of nodes from which RPC devices can be reached; an actor that fronts some takes one unit."""


def resource_of(name: str) -> str:
    """Ray's resource of the kind called `name`."""
    return KINDS[name].native or f"autotune_{name}"


def demand_of(name: str) -> dict[str, Any]:
    """What an actor of the kind called `name` asks of Ray."""
    kind = KINDS[name]
    return {**kind.options, **({} if kind.native else {"resources": {resource_of(name): 1}})}


def local_resources() -> dict[str, float]:
    """Custom resources of this host, where Ray is started by itself."""
    ours = {resource_of(name): float(kind.local_count()) for name, kind in KINDS.items() if not kind.native}
    return {**ours, FRONT: 64.0}
