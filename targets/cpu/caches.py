"""Caches of this host's processor.

Sizes and ways are those of the system, else those that the C library reads from the processor, else usual ones.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_SYSTEM = Path("/sys/devices/system/cpu")
_USUAL = {1: (32 << 10, 8), 2: (1 << 20, 16), 3: (32 << 20, 16)}  # bytes and ways by level
_GLIBC = {1: (188, 189), 2: (191, 192), 3: (194, 195)}
"""Numbers by which `sysconf` knows size and ways of a level; Python has no names for them."""


@dataclass(frozen=True)
class Caches:
    """Data caches by level.

    Attributes:
        sizes: bytes that one core has of each: the first two are its own, the third is shared.
        ways: lines of a set of each.
        sources: source of the figures by level: `system`, `library` or `usual`.
    """

    sizes: tuple[int, int, int]
    ways: tuple[int, int, int]
    sources: tuple[str, str, str]


def host_caches(system: Path = _SYSTEM) -> Caches:
    """Reads the caches of this host's first core; a usual size replaces one that is unknown.

    Args:
        system: folder in which Linux describes its cores.
    """
    found = [_from_system(level, system) or _from_library(level) or (*_USUAL[level], "usual") for level in (1, 2, 3)]
    (first, ways1, by1), (second, ways2, by2), (third, ways3, by3) = found
    return Caches((first, second, third), (ways1, ways2, ways3), (by1, by2, by3))


def _from_system(level: int, system: Path) -> tuple[int, int, str] | None:
    for folder in sorted((system / "cpu0" / "cache").glob("index*")):
        facts = {name: _read(folder / name) for name in ("level", "type", "size", "ways_of_associativity")}
        if facts["level"] == str(level) and facts["type"] != "Instruction" and facts["size"]:
            number, unit = facts["size"][:-1], facts["size"][-1]
            size = int(number) << {"K": 10, "M": 20, "G": 30}[unit] if unit in "KMG" else int(facts["size"])
            ways = int(facts["ways_of_associativity"] or 0)  # 0: any line anywhere, or not told
            return (size, ways or _USUAL[level][1], "system") if size > 0 else None
    return None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _from_library(level: int) -> tuple[int, int, str] | None:
    if "CS_GNU_LIBC_VERSION" not in os.confstr_names or not os.confstr("CS_GNU_LIBC_VERSION"):
        return None  # of other libraries these numbers mean something else
    try:
        size, ways = (os.sysconf(number) for number in _GLIBC[level])
    except (OSError, ValueError):
        return None
    return (size, ways if ways > 0 else _USUAL[level][1], "library") if size > 0 else None
