"""Where databases of schedules lie: the one that comes along, and the user's own."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path

from autotune.tuner.database.entry import DatabaseError
from autotune.tuner.database.store import ScheduleDatabase
from search_space.folders import data_folder

SHIPPED = "shipped"
NONE = "none"
OWN = "own"
"""The user's, and what comes along."""
_File = tuple[Path, int, int]
"""A path, and the time of the last change in ns and the size in bytes, by which the file is the one that was read."""
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
    return _merged(_files(name))


def digest_of(name: str) -> str:
    """Twelve hexadecimal digits that say what the files of a database hold, without reading their entries.

    Raises:
        DatabaseError: a file that cannot be read.
    """
    return _digest(_files(name))


def _files(name: str) -> tuple[_File, ...]:
    """Returns the files of a database.

    Raises:
        DatabaseError: a file that is not there.
    """
    own, shipped = own_path(), sorted(_SHIPPED.glob("*.jsonl"))
    files = {NONE: [], SHIPPED: shipped, OWN: [*shipped, *([own] if own.exists() else [])]}
    return tuple((path, *_version(path)) for path in files.get(name, [Path(name).expanduser()]))


@lru_cache(maxsize=4)
def _digest(files: tuple[_File, ...]) -> str:
    found = hashlib.sha256()
    for path, _, size in files:
        found.update(b"%d," % size + path.read_bytes())
    return found.hexdigest()[:12]


@lru_cache(maxsize=4)
def _merged(files: tuple[_File, ...]) -> ScheduleDatabase:
    return ScheduleDatabase().merged(ScheduleDatabase.read(path, check=False) for path, _, _ in files)


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
