"""Connecting to Ray: to one that is started here, for this user alone, or to a cluster.

Ray's ports can be reached from other hosts and whoever speaks to them can run code, so a Ray that is started here wants
a token that only its own processes know, and keeps its files in a folder that only this user can read.
"""

from __future__ import annotations

import atexit
import logging
import os
import secrets
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from measure.errors import PoolError
from measure.host import allowed_cores
from measure.ray.resources import local_resources
from measure.ray.settings import RaySettings

_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_USAGE_STATS_PROMPT_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
}
_LEAN = {
    "RAY_prestart_worker_first_driver": "0",  # actors get processes of their own anyway
    "RAY_memory_monitor_refresh_ms": "0",  # it would end actors in place of the kernels that eat the memory
}
_PROBE = 5.0
"""Seconds for a cluster's host to answer."""

_LONGEST = 25
"""Bytes of the folder in which Ray's own may lie: paths of its sockets may have 107 in all."""


def connect(address: str | None, settings: RaySettings) -> Callable[[], None]:
    """Connects this process to Ray; one that is connected already stays as it is.

    Args:
        address: of a cluster, for `ray.init`: `auto` or `HOST:PORT`; None: starts a Ray on this host.
        settings: size of the object store.

    Returns:
        What ends the connection, and the Ray that was started for it.

    Raises:
        PoolError: Ray cannot be started or reached.
    """
    import ray

    if ray.is_initialized():
        return lambda: None
    return _join(address) if address else _start(settings)


def _join(address: str) -> Callable[[], None]:
    import ray

    _probe(address)
    changes = {**_QUIET, "RAY_AUTH_MODE": os.environ.get("RAY_AUTH_MODE", "token" if _user_has_token() else "disabled")}
    leave = _environment(changes)
    leave.__enter__()
    _read_environment()
    try:
        _init(address)
    except (ConnectionError, RuntimeError, ValueError) as error:
        leave.__exit__(None, None, None)
        said = str(error).strip().partition("\n")[0]
        raise PoolError(f"a Ray cluster must answer at {address}, but: {said}") from error

    def end() -> None:
        ray.shutdown()
        leave.__exit__(None, None, None)

    return end


def _probe(address: str) -> None:
    """Finds out at once that nobody is there, which takes Ray more than a minute."""
    host, _, port = address.rpartition(":")
    if host and port.isdecimal():
        try:
            socket.create_connection((host, int(port)), _PROBE).close()
        except OSError as error:
            raise PoolError(f"a Ray cluster must answer at {address}, but: {error}") from None


def _start(settings: RaySettings) -> Callable[[], None]:
    import ray
    from ray._private.node import Node
    from ray._private.parameter import RayParams

    base = tempfile.gettempdir()
    folder = Path(tempfile.mkdtemp(prefix="at", dir=base if len(base) <= _LONGEST else "/tmp"))
    changes = {
        **_QUIET,
        **_LEAN,
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": _token(),
        "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),
    }
    leave = _environment(changes)
    leave.__enter__()
    _read_environment()
    node: Any = None

    def end() -> None:
        atexit.unregister(end)
        ray.shutdown()
        if node is not None:
            node.kill_all_processes(check_alive=False, allow_graceful=True, wait=True)
        leave.__exit__(None, None, None)
        shutil.rmtree(folder, ignore_errors=True)  # agents may still be writing their last lines

    atexit.register(end)
    try:
        # What `ray.init` would start, less the processes that show logs and scale clusters: it takes half the time.
        node = Node(
            RayParams(
                num_cpus=len(allowed_cores()),
                num_gpus=None,
                resources=local_resources(),
                object_store_memory=settings.object_store_bytes,
                include_dashboard=False,
                include_log_monitor=False,  # type: ignore[arg-type]
                no_monitor=True,
                min_worker_port=0,
                max_worker_port=0,
                temp_dir=str(folder),
            ),
            head=True,
            shutdown_at_exit=False,  # it would set signal handlers, for which this may be the wrong thread
            spawn_reaper=True,  # ends it should this process be killed
        )
        _init(node.gcs_address)
    except Exception as error:  # whatever Ray raises: its own processes may fail in many ways
        end()
        said = str(error).strip().partition("\n")[0]
        raise PoolError(f"Ray must start on this host, but: {said}") from error
    return end


def _init(address: str) -> None:
    import ray
    from ray._private import worker

    logging.getLogger("ray").setLevel(logging.ERROR)
    worker._worker_logs_enabled = False  # else it prints 20 lines of its logs when a node goes
    ray.init(
        address=address,
        namespace="autotune",
        log_to_driver=False,
        configure_logging=False,
        logging_level=logging.ERROR,
    )


def _read_environment() -> None:
    """Makes Ray read its settings and the token again: it has done so when it was imported, maybe long ago."""
    from ray._raylet import AuthenticationTokenLoader, Config  # type: ignore[attr-defined]

    Config.initialize("")
    AuthenticationTokenLoader.instance().reset_cache()


@cache
def _token() -> str:
    """Of every Ray that this process starts; Ray reads it once a process."""
    return secrets.token_hex(32)


def _user_has_token() -> bool:
    named = "RAY_AUTH_TOKEN" in os.environ or "RAY_AUTH_TOKEN_PATH" in os.environ
    return named or (Path.home() / ".ray" / "auth_token").is_file()


@contextmanager
def _environment(changes: dict[str, str]) -> Iterator[None]:
    """Environment variables that Ray's processes are to see, until the block ends."""
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
