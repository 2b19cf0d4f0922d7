"""The one Ray of a test session, nodes that come and go, and the processes behind an actor."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from measure.ray.cluster import connect
from measure.ray.pool import RayPool
from measure.ray.settings import RaySettings
from measure.settings import LocalSettings
from tests.measure.helpers import EXECUTOR


@cache
def start() -> None:
    """Starts Ray for this process, until it ends."""
    connect(None, RaySettings())


def address() -> str:
    """`HOST:PORT` of the session's Ray."""
    import ray

    return str(ray.get_runtime_context().gcs_address)


def descendants(pid: int) -> set[int]:
    """Processes that a process has started, and those that they have."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found


class SessionPool(RayPool):
    """A pool on the session's Ray, which it starts when there is work for it."""

    def _start(self) -> None:
        start()
        super()._start()


def ray_pool(folder: Path, **options: Any) -> RayPool:
    """A pool on the session's Ray whose kernels misbehave on demand; `options` are of `LocalSettings`."""
    given = {"executor": EXECUTOR, "host_lock": str(folder / "host.lock"), **options}
    return SessionPool(settings=RaySettings(LocalSettings(**given), poll=0.2))


class Node:
    """One more node of the session's Ray, of real processes.

    Args:
        resources: custom ones.
    """

    def __init__(self, resources: dict[str, float]) -> None:
        import ray

        before = {node["NodeID"] for node in ray.nodes()}
        options = ["--num-cpus=0", "--num-gpus=0", f"--resources={json.dumps(resources)}", "--min-worker-port=0"]
        options += ["--max-worker-port=0", f"--object-store-memory={80 << 20}", "--include-log-monitor=false"]
        ray_command = str(Path(sys.executable).with_name("ray"))
        start = [ray_command, "start", f"--address={address()}", "--block", *options]
        self._process = subprocess.Popen(start, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.id = until(lambda: [node["NodeID"] for node in ray.nodes() if node["NodeID"] not in before])[0]

    def kill(self) -> None:
        """Ends it by SIGKILL, as a power cut would; may be called twice."""
        family = descendants(self._process.pid)
        for pid in family:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()


def children(role: str) -> list[tuple[int, int]]:
    """Process ids of `role`'s children of our actors, and of the actors."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            arguments = (entry / "cmdline").read_bytes().split(b"\0")
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            title = (Path("/proc") / str(parent) / "cmdline").read_bytes()
        except OSError:
            continue
        if b"from measure.worker import main; main()" not in arguments or not title.startswith(b"ray::Actor"):
            continue
        if json.loads(arguments[-2])["role"] == role:
            found.append((int(entry.name), parent))
    return found


def until(condition: Callable[[], Any], seconds: float = 20.0) -> Any:
    """Waits until `condition` holds, and returns its value."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, f"still not so after {seconds} s"
        time.sleep(0.02)
    return found


def has_ended(pid: int) -> bool:
    """Tells whether a process has ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state == "Z" or not os.path.exists(f"/proc/{pid}")
