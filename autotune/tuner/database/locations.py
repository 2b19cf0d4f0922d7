"""Paths of databases of schedules: the shipped ones and the user's."""

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
"""Name of the user's database together with the shipped ones."""
_File = tuple[Path, int, int]
"""Path, time of the last change in ns and size in bytes, which identify a version of a file."""
_SHIPPED = Path(__file__).parent / "shipped"


def shipped_file(target: str) -> Path:
    """Returns the file of the shipped schedules of a target."""
    return _SHIPPED / f"{target}.jsonl"


def own_path() -> Path:
    """Returns the file of the user's database, in the folder of data that cannot be made again."""
    return data_folder() / "schedules.jsonl"


def open_schedules(name: str) -> ScheduleDatabase:
    """Opens the database of a name: `shipped`, `own` (the user's and the shipped one), `none`, or a file.

    Raises:
        DatabaseError: a file cannot be read.
    """
    return _merge_files(_files(name))


def compute_digest(name: str) -> str:
    """Computes twelve hexadecimal digits from the contents of a database's files, without parsing entries.

    Raises:
        DatabaseError: a file cannot be read.
    """
    return _digest(_files(name))


def _files(name: str) -> tuple[_File, ...]:
    """Returns the files of a database.

    Raises:
        DatabaseError: a file does not exist.
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
def _merge_files(files: tuple[_File, ...]) -> ScheduleDatabase:
    return ScheduleDatabase().merge(ScheduleDatabase.read(path, check=False) for path, _, _ in files)


def _version(path: Path) -> tuple[int, int]:
    """Returns time and size of a file, which identify its version.

    Raises:
        DatabaseError: the file does not exist.
    """
    try:
        found = path.stat()
    except OSError:
        raise DatabaseError(f"a database must be {SHIPPED}, {OWN}, {NONE} or a file, but got {str(path)!r}") from None
    return found.st_mtime_ns, found.st_size
