"""Connections to Ray: to a cluster, or to an instance started here for this user alone.

Ray's ports can be reached from other hosts, and everybody who connects can run code. So a Ray that is started here
requires a token that only its own processes know. Only this user can read the folder of its files.
"""

from __future__ import annotations

import atexit
import logging
import os
import secrets
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
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
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_DEDUP_LOGS_SKIP_REGEX": "^",  # otherwise it prints 20 lines of its logs when a node leaves
}
_LEAN = {
    "RAY_prestart_worker_first_driver": "0",  # actors get processes of their own anyway
    "RAY_memory_monitor_refresh_ms": "0",  # it would end actors instead of the kernels that use the memory
}
_PROBE = 5.0
"""Seconds for a cluster's host to answer."""

_LONGEST = 23
"""Maximum bytes of the path of the folder that holds Ray's own: paths of its sockets are limited to 107 bytes."""


def connect(address: str | None, settings: RaySettings) -> Callable[[], None]:
    """Connects this process to Ray, unless it is connected already.

    Args:
        address: address of a cluster, for `ray.init`: `auto` or `HOST:PORT`; None: starts a Ray on this host.
        settings: size of the object store.

    Returns:
        Function that ends the connection, and the Ray that was started for it; may be called twice.

    Raises:
        PoolError: Ray cannot be started or reached.
    """
    with ExitStack() as connection:
        folder = None if address else connection.enter_context(_folder())
        connection.enter_context(_environment(_joining() if address else _starting()))
        import ray  # reads the environment when it is imported

        if ray.is_initialized():
            return lambda: None
        logging.getLogger("ray").setLevel(logging.ERROR)
        connection.callback(ray.shutdown, wait_for_processes=True)
        if address:
            _join(address)
        else:
            _start(settings, str(folder))
        end = connection.pop_all().close
    atexit.register(end)
    return end


def _join(address: str) -> None:
    _probe(address)
    try:
        _init(address)
    except (ConnectionError, RuntimeError, ValueError) as error:
        said = str(error).strip().partition("\n")[0]
        raise PoolError(f"a Ray cluster must answer at {address}, but: {said}") from error


def _probe(address: str) -> None:
    """Checks in seconds that the cluster's host answers; Ray needs more than a minute to notice that it does not."""
    host, _, port = address.rpartition(":")
    if host and port.isdecimal():
        try:
            socket.create_connection((host, int(port)), _PROBE).close()
        except OSError as error:
            raise PoolError(f"a Ray cluster must answer at {address}, but: {error}") from None


def _start(settings: RaySettings, folder: str) -> None:
    try:
        _init(
            "local",
            num_cpus=len(allowed_cores()),
            resources=local_resources(),
            object_store_memory=settings.object_store_bytes,
            include_dashboard=False,
            _temp_dir=os.path.join(folder, "r"),  # all users can read this subfolder
        )
    except Exception as error:  # Ray's processes may fail in many ways
        said = str(error).strip().partition("\n")[0]
        raise PoolError(f"Ray must start on this host, but: {said}") from error


def _init(address: str, **options: Any) -> None:
    import ray

    ray.init(
        address=address,
        namespace="autotune",
        log_to_driver=False,
        configure_logging=False,
        logging_level=logging.ERROR,
        **options,
    )


def _joining() -> dict[str, str | None]:
    """Returns environment variables for joining a running cluster."""
    token = any(name in os.environ for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"))
    token = token or Path(os.path.expanduser("~/.ray/auth_token")).is_file()
    return {**_QUIET, "RAY_AUTH_MODE": os.environ.get("RAY_AUTH_MODE", "token" if token else "disabled")}


def _starting() -> dict[str, str | None]:
    """Returns environment variables for starting a Ray, which requires a token because `RAY_AUTH_MODE` is unset."""
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    return {**_QUIET, **_LEAN, "RAY_AUTH_MODE": None, "RAY_AUTH_TOKEN": _token(), "PYTHONPATH": path}


@cache
def _token() -> str:
    """Returns the token of every Ray that this process starts; Ray reads it once per process."""
    return secrets.token_hex(32)


def _folder() -> tempfile.TemporaryDirectory[str]:
    """Makes a folder for Ray's files; agents may still be writing their last lines when it is removed."""
    base = tempfile.gettempdir()
    parent = base if len(base) <= _LONGEST else "/tmp"
    return tempfile.TemporaryDirectory(prefix="at", dir=parent, ignore_cleanup_errors=True)


@contextmanager
def _environment(changes: Mapping[str, str | None]) -> Iterator[None]:
    """Sets environment variables for Ray's processes until the block ends; None removes a variable."""
    before = {name: os.environ.get(name) for name in changes}
    _set(changes)
    try:
        yield
    finally:
        _set(before)


def _set(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
