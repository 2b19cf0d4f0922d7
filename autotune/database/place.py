"""Where databases of schedules lie: the one that comes along, and the user's own."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path

from autotune.database.entry import DatabaseError
from autotune.database.store import ScheduleDatabase
from search_space.folders import data_folder

SHIPPED = "shipped"
NONE = "none"
OWN = "own"
"""The user's, and what comes along."""
_SHIPPED = Path(__file__).parent / "shipped"


def shipped_file(target: str) -> Path:
    """Of the schedules that come along, those of a target."""
    return _SHIPPED / f"{target}.jsonl"


def own_path() -> Path:
    """The user's database: where users keep data that cannot be made again."""
    return data_folder() / "schedules.jsonl"


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
    return _read(path, *_version(path))


def digest_of(name: str) -> str:
    """Twelve hexadecimal digits that say what the files of a database hold, without reading their entries.

    Raises:
        DatabaseError: a file that cannot be read.
    """
    own = own_path()
    files = {NONE: [], SHIPPED: _shipped_files(), OWN: [*_shipped_files(), *([own] if own.exists() else [])]}
    every = files.get(name) if name in files else [Path(name).expanduser()]
    return _digest(tuple((path, *_version(path)) for path in every or ()))


@lru_cache(maxsize=4)
def _digest(files: tuple[tuple[Path, int, int], ...]) -> str:
    found = hashlib.sha256()
    for path, _, size in files:
        found.update(b"%d," % size + path.read_bytes())
    return found.hexdigest()[:12]


def _version(path: Path) -> tuple[int, int]:
    """By which a file is known to be the one that was read before.

    Raises:
        DatabaseError: there is none.
    """
    try:
        found = path.stat()
    except OSError:
        raise DatabaseError(f"a database must be {SHIPPED}, {OWN}, {NONE} or a file, but got {str(path)!r}") from None
    return found.st_mtime_ns, found.st_size


@lru_cache(maxsize=4)
def _read(path: Path, changed: int, size: int) -> ScheduleDatabase:
    return ScheduleDatabase.read(path, check=False)


@lru_cache(maxsize=2)
def _with_own(path: Path, changed: int, size: int) -> ScheduleDatabase:
    return _shipped().merged([_read(path, changed, size)])


@lru_cache(maxsize=1)
def _shipped() -> ScheduleDatabase:
    return ScheduleDatabase().merged(ScheduleDatabase.read(file, check=False) for file in _shipped_files())


def _shipped_files() -> list[Path]:
    return sorted(_SHIPPED.glob("*.jsonl"))
