"""Settings of measuring on Ray."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from measure.settings import LocalSettings
from measure.timing import TimingPolicy


@dataclass(frozen=True)
class RaySettings:
    """Settings for measuring trials on Ray.

    Attributes:
        workplace: settings of each actor's child process: the executor, limits of time and memory. `builders` is the
            number of builds at a time on each host; None: Ray's number of CPUs there.
        poll: seconds between looks at which nodes exist.
        object_store_bytes: size of the object store of a Ray that is started here; Ray requires at least 75 MiB.
    """

    workplace: LocalSettings = field(default_factory=LocalSettings)
    poll: float = 1.0
    object_store_bytes: int = 80 << 20

    def __post_init__(self) -> None:
        if not self.poll > 0:
            raise ValueError(f"`poll` must be positive seconds, but got poll={self.poll}")
        if self.object_store_bytes < 75 << 20:
            rule = f"`object_store_bytes` must be at least {75 << 20}"
            raise ValueError(f"{rule}, but got object_store_bytes={self.object_store_bytes}")


@dataclass(frozen=True)
class ProxySettings:
    """RPC devices behind proxy actors.

    Attributes:
        addresses: `rpc://...`, see `measure.rpc.settings.parse_addresses`; each gets an actor of its own.
        settings: fields of `RpcSettings`.
    """

    addresses: str
    settings: Mapping[str, Any] = field(repr=False)


def workplace_to_json(settings: LocalSettings) -> dict[str, Any]:
    """Returns the plain form, which an actor is made from."""
    return asdict(settings)


def workplace_from_json(data: Mapping[str, Any]) -> LocalSettings:
    """Makes settings of their plain form."""
    return LocalSettings(**{**data, "timing": TimingPolicy(**data["timing"])})
