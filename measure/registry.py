"""Kinds of measuring pools by name; each is imported on first use."""

from __future__ import annotations

from importlib import import_module

from measure.pool import MeasurePool
from search_space.operators.checks import choice

POOLS: dict[str, str] = {
    "local": "measure.local:LocalPool",
    "replay": "measure.replay:ReplayPool",
    "ray": "measure.ray.pool:RayPool",
    "rpc": "measure.rpc.pool:RpcPool",
}
"""Name -> module and class."""


def get(name: str) -> type[MeasurePool]:
    """Returns the class of the pool called `name`.

    Raises:
        ValueError: no pool has this name; names the nearest one.
    """
    module, _, attribute = POOLS[choice("pool", name, sorted(POOLS))].partition(":")
    kind: type[MeasurePool] = getattr(import_module(module), attribute)
    return kind


def make(spec: str, token_file: str | None = None, tls_ca: str | None = None) -> MeasurePool:
    """Makes the pool that `spec` names.

    Args:
        spec: specification: `local`; `rpc://HOST:PORT?key=NAME`, see `measure.rpc.settings`; `ray`, see
            `measure.ray.pool`; or `replay:FILE`, which answers from a records file.
        token_file: file with the token of RPC workers and trackers.
        tls_ca: PEM file of certificates that sign those of the servers; None: connections are not encrypted.

    Raises:
        PoolError: a token file or certificates that cannot be used.
        ValueError: no pool has this name, or a replay lacks its file.
        RecordError: a file that cannot be read.
    """
    return get(spec.partition(":")[0].partition("+")[0]).of(spec, token_file, tls_ca)
