"""Where databases of schedules lie: the one that comes along, and the user's own."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

from autotune.database.entry import DatabaseError
from autotune.database.store import ScheduleDatabase

SHIPPED = "shipped"
NONE = "none"
OWN = "own"
"""The user's, and what comes along."""
_SHIPPED = Path(__file__).parent / "shipped"


def own_path() -> Path:
    """The user's database: where users keep data that cannot be made again."""
    base = os.environ.get("XDG_DATA_HOME", "")
    root = Path(base) if os.path.isabs(base) else Path.home() / ".local" / "share"
    return root / "autotune" / "schedules.jsonl"


def open_schedules(name: str) -> ScheduleDatabase:
    """The database of a name: `shipped`, `own` (the user's and what comes along), `none`, or a file.

    Raises:
        DatabaseError: a file that cannot be read.
    """
    if name == NONE:
        return ScheduleDatabase()
    if name == SHIPPED:
        return _shipped()
    if name == OWN:
        path = own_path()
        return _with_own(path, *_version(path)) if path.exists() else _shipped()
    path = Path(name).expanduser()
    if not path.is_file():
        raise DatabaseError(f"a database must be {SHIPPED}, {OWN}, {NONE} or a file, but got {name!r}")
    return _read(path, *_version(path))


def _version(path: Path) -> tuple[int, int]:
    """By which a file is known to be the one that was read before."""
    found = path.stat()
    return found.st_mtime_ns, found.st_size


@lru_cache(maxsize=4)
def _read(path: Path, changed: int, size: int) -> ScheduleDatabase:
    return ScheduleDatabase.read(path)


@lru_cache(maxsize=2)
def _with_own(path: Path, changed: int, size: int) -> ScheduleDatabase:
    return _shipped().merged([_read(path, changed, size)])


@lru_cache(maxsize=1)
def _shipped() -> ScheduleDatabase:
    files = sorted(_SHIPPED.glob("*.jsonl"))
    return ScheduleDatabase().merged(map(ScheduleDatabase.read, files))
