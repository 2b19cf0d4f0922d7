"""Kinds of measuring pools by name; each is imported when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches

from measure.pool import MeasurePool


def _local() -> type[MeasurePool]:
    from measure.local import LocalPool

    return LocalPool


def _replay() -> type[MeasurePool]:
    from measure.replay import ReplayPool

    return ReplayPool


def _ray() -> type[MeasurePool]:
    from measure.ray.pool import RayPool

    return RayPool


def _rpc() -> type[MeasurePool]:
    from measure.rpc.pool import RpcPool

    return RpcPool


POOLS: dict[str, Callable[[], type[MeasurePool]]] = {"local": _local, "replay": _replay, "ray": _ray, "rpc": _rpc}
"""Name -> importer of the class."""


def get(name: str) -> type[MeasurePool]:
    """Class of the pool called `name`.

    Raises:
        ValueError: no such pool; names the nearest one.
    """
    if name not in POOLS:
        near = get_close_matches(name, POOLS, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"`pool` must be one of {', '.join(sorted(POOLS))}, but got pool={name!r}{hint}")
    return POOLS[name]()


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
