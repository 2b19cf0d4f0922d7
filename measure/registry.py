"""Kinds of measuring pools by name; each is imported when it is first asked for."""

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
"""Name -> where the class is."""


def get(name: str) -> type[MeasurePool]:
    """Class of the pool called `name`.

    Raises:
        ValueError: no such pool; names the nearest one.
    """
    module, _, attribute = POOLS[choice("pool", name, sorted(POOLS))].partition(":")
    kind: type[MeasurePool] = getattr(import_module(module), attribute)
    return kind


def make(spec: str, token_file: str | None = None, tls_ca: str | None = None) -> MeasurePool:
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
    return get(spec.partition(":")[0].partition("+")[0]).of(spec, token_file, tls_ca)
