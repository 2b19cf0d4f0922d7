"""Measuring pools of a run."""

from __future__ import annotations

from collections.abc import Iterable

from autotune.config import ConfigError, Measure
from measure import registry
from measure.pool import MeasurePool
from targets.base import Target


def check_runnable(measure: Measure, targets: Iterable[Target]) -> None:
    """Raises ConfigError if the pool is this machine and it cannot run kernels for one of the targets."""
    for target in targets if measure.pool == "local" else ():
        if why := target.unavailable():
            raise ConfigError(why, "target")


def make_pool(measure: Measure) -> MeasurePool:
    """Makes the pool that a section names, see `measure.registry.make`; returns a pool object unchanged."""
    if not isinstance(measure.pool, str):
        return measure.pool
    return registry.make(measure.pool, measure.token_file, measure.tls_ca)
