"""Measuring pools of a run by name: see `make_pool`."""

from __future__ import annotations

from collections.abc import Iterable

from autotune.config import ConfigError, Measure
from measure import registry
from measure.database import Database
from measure.pool import MeasurePool
from measure.replay import ReplayPool
from targets.base import Target


def check_runnable(measure: Measure, targets: Iterable[Target]) -> None:
    """Raises ConfigError where the pool is this machine and it cannot run what is built for one of the targets."""
    for target in targets if measure.pool == "local" else ():
        if why := target.unavailable():
            raise ConfigError(why, "target")


def make_pool(measure: Measure) -> MeasurePool:
    """The pool that a section names; one that is open already is that itself.

    `local`; `rpc://HOST:PORT?key=NAME`, see `measure.rpc.settings`; `ray`, see `measure.ray.pool`; or `replay:FILE`,
    which answers from a records file.

    Raises:
        PoolError: a token file or certificates that cannot be used.
        ValueError: no such pool, or a replay without its file.
        RecordError: a file that cannot be read.
    """
    spec = measure.pool
    if not isinstance(spec, str):
        return spec
    name, colon, path = spec.partition(":")
    name = name.partition("+")[0]
    kind = registry.get(name)
    if name == "rpc":
        from measure.rpc.pool import rpc_pool

        return rpc_pool(spec, measure.token_file, measure.tls_ca)
    if name == "ray":
        from measure.ray.pool import ray_pool

        return ray_pool(spec, measure.token_file, measure.tls_ca)
    if not issubclass(kind, ReplayPool):
        if colon:
            raise ValueError(f"`pool` must be {name!r} alone, but got pool={spec!r}")
        return kind()
    if not path:
        raise ValueError(f"`pool` must be 'replay:FILE' with a records file, but got pool={spec!r}")
    with Database(path, readonly=True) as database:
        return ReplayPool.from_records(database)
