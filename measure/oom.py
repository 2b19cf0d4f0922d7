"""Whether the system killed a process for its memory: by the kernel's own count of those that it did.

SIGKILL says nothing of who sent it, so the count is read before and after. That of the control group, which the worker
shares with its parent, leaves out other containers; where there is none, that of the whole machine is taken.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from pathlib import Path

_ROOT = Path("/")


def oom_kills(root: Path = _ROOT) -> int | None:
    """Processes that were killed for memory so far, where this one's would be counted; None where nothing counts them.

    Args:
        root: of the file system.
    """
    place = _counter(root)
    return None if place is None else _read(place)


@cache
def _counter(root: Path) -> Path | None:
    """The file with the nearest count."""
    return next((place for place in _candidates(root) if _read(place) is not None), None)


def _candidates(root: Path) -> list[Path]:
    """Files that may have a count, the nearest first: of version 2 of control groups, version 1, and the machine."""
    mounted, places = root / "sys/fs/cgroup", []
    with suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, group = line.split(":", 2)
            if not controllers:
                places.append(mounted / group.lstrip("/") / "memory.events")
            elif "memory" in controllers.split(","):
                places.append(mounted / "memory" / group.lstrip("/") / "memory.oom_control")
        places.append(mounted / "memory.events")  # of a container that sees its own group as the root
    return [*places, root / "proc/vmstat"]


def _read(place: Path) -> int | None:
    with suppress(OSError, ValueError):
        with place.open("rb", buffering=0) as file:  # it is read for every trial
            text = file.read()
        for line in text.splitlines():
            name, _, count = line.partition(b" ")
            if name == b"oom_kill":
                return int(count)
    return None
