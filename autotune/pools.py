"""Measuring pools of a run by name."""

from __future__ import annotations

from collections.abc import Iterable

from measure import registry
from targets import registry as target_registry

make_pool = registry.make


def check_runnable(spec: str, targets: Iterable[str], where: str) -> None:
    """Raises ConfigError where the pool is this machine and it cannot run what is built for one of the targets."""
    from autotune.config import ConfigError

    for target in dict.fromkeys(targets) if spec == "local" else ():
        if why := target_registry.get(target).unavailable():
            raise ConfigError(f"{where}:target: {why}")
