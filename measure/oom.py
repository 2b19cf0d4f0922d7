"""Detection of processes that the system killed for their memory, by the kernel's own count.

SIGKILL says nothing of who sent it, so the count is read before and after. The count of the control group, which the
worker shares with its parent, leaves out other containers; without one, that of the machine is used.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from pathlib import Path

_ROOT = Path("/")


def oom_kills(root: Path = _ROOT) -> int | None:
    """Returns the number of processes killed for memory so far, in the nearest count; None if nothing counts them.

    Args:
        root: root of the file system.
    """
    place = _counter(root)
    return None if place is None else _read(place)


@cache
def _counter(root: Path) -> Path | None:
    """Finds the file with the nearest count."""
    return next((place for place in _candidates(root) if _read(place) is not None), None)


def _candidates(root: Path) -> list[Path]:
    """Lists files that may have a count, the nearest first: control groups of version 2, of version 1, the machine."""
    mounted, paths = root / "sys/fs/cgroup", []
    with suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, group = line.split(":", 2)
            if not controllers:
                paths.append(mounted / group.lstrip("/") / "memory.events")
            elif "memory" in controllers.split(","):
                paths.append(mounted / "memory" / group.lstrip("/") / "memory.oom_control")
        paths.append(mounted / "memory.events")  # a container sees its own group as the root
    return [*paths, root / "proc/vmstat"]


def _read(path: Path) -> int | None:
    with suppress(OSError, ValueError):
        with path.open("rb", buffering=0) as file:  # unbuffered, as it is read for every trial
            text = file.read()
        for line in text.splitlines():
            name, _, count = line.partition(b" ")
            if name == b"oom_kill":
                return int(count)
    return None
