"""Measuring pools of a run by name: see `make_pool`."""

from __future__ import annotations

from collections.abc import Iterable

from measure import registry
from measure.database import Database
from measure.pool import MeasurePool
from measure.replay import ReplayPool
from targets import registry as target_registry


def check_runnable(spec: str, targets: Iterable[str], where: str) -> None:
    """Raises ConfigError where the pool is this machine and it cannot run what is built for one of the targets."""
    from autotune.config import ConfigError

    for target in dict.fromkeys(targets) if spec == "local" else ():
        if why := target_registry.get(target).unavailable():
            raise ConfigError(f"{where}:target: {why}")


def make_pool(spec: str, token_file: str | None = None, tls_ca: str | None = None) -> MeasurePool:
    """The pool that `spec` names.

    Args:
        spec: `local`; `rpc://HOST:PORT?key=NAME`, see `measure.rpc.settings`; `ray`, see `measure.ray.pool`; or
            `replay:FILE`, which answers from a records file.
        token_file: holds the token of RPC workers and trackers.
        tls_ca: PEM file of certificates by one of which those are signed; None: they do not encrypt.

    Raises:
        PoolError: a token file or certificates that cannot be used.
        ValueError: no such pool, or a replay without its file.
        RecordError: a file that cannot be read.
    """
    name, colon, path = spec.partition(":")
    name = name.partition("+")[0]
    kind = registry.get(name)
    if name == "rpc":
        from measure.rpc.pool import rpc_pool

        return rpc_pool(spec, token_file, tls_ca)
    if name == "ray":
        from measure.ray.pool import ray_pool

        return ray_pool(spec, token_file, tls_ca)
    if not issubclass(kind, ReplayPool):
        if colon:
            raise ValueError(f"`pool` must be {name!r} alone, but got pool={spec!r}")
        return kind()
    if not path:
        raise ValueError(f"`pool` must be 'replay:FILE' with a records file, but got pool={spec!r}")
    with Database(path, readonly=True) as database:
        return ReplayPool.from_records(database)
