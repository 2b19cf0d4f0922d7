"""Measuring pools of a run by name: `local`, `ray` or `ray:ADDRESS`, or `replay:FILE` to answer from a records file."""

from __future__ import annotations

from measure import registry
from measure.database import Database
from measure.pool import MeasurePool
from measure.replay import ReplayPool


def make_pool(spec: str) -> MeasurePool:
    """The pool that `spec` names.

    Raises:
        ValueError: no such pool, or a replay without its file.
        RecordError: a file that cannot be read.
    """
    name, _, path = spec.partition(":")
    kind = registry.get(name)
    if name == "ray":
        return ray_pool(path)
    if not issubclass(kind, ReplayPool):
        if path:
            raise ValueError(f"`pool` must be {name!r} alone, but got pool={spec!r}")
        return kind()
    if not path:
        raise ValueError(f"`pool` must be 'replay:FILE' with a records file, but got pool={spec!r}")
    with Database(path, readonly=True) as database:
        return ReplayPool.from_records(database)


def ray_pool(address: str) -> MeasurePool:
    """The pool on a Ray cluster at `address`, or on one that is started here where it is empty."""
    from measure.ray.pool import RayPool

    return RayPool(address or None)
