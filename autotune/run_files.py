"""Files of a run folder: names, schemas and writing; one run at a time works in a folder."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from autotune.config.errors import ConfigError
from measure.filelock import lock_within
from search_space.files import replace_file

SCHEMA = "autotune.summary/1"
RECORDS = "records.jsonl"
"""Measurements."""

PRECISION = "precision.json"
"""Choice of mixed precision, to which the records and the executable of the run belong."""

BENCH = "bench.json"
"""Timings of other runtimes by `autotune bench`."""


def make_folder(folder: Path) -> Path:
    """Makes a run folder and checks that it is writable.

    Raises:
        ConfigError: the folder cannot be written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".writable-"):
            pass
    except OSError as error:
        raise ConfigError(f"`output` must be a folder to write to, but got {folder}: {error.strerror}") from None
    return folder


@contextmanager
def claim_folder(folder: Path) -> Iterator[None]:
    """Keeps other runs out of a run folder; the system lets go of it when this process dies.

    Raises:
        ConfigError: another run works in the folder.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if not lock_within(0.0, descriptor):
            raise ConfigError(f"`output` must be the folder of one run at a time, but got {folder}, in use")
        yield
    finally:
        os.close(descriptor)


def set_aside(path: Path) -> Path | None:
    """Moves the records of an earlier run out of the way; returns their new path, or None if there are no records."""
    if not path.exists() or not path.stat().st_size:
        return None
    number = 1
    while (aside := path.with_name(f"{path.stem}.{number}{path.suffix}")).exists():
        number += 1
    path.rename(aside)
    return aside


def write_json(document: Any, path: Path) -> None:
    """Writes JSON to a file atomically."""
    write_text(json.dumps(document, indent=2, allow_nan=False) + "\n", path)


def write_text(text: str, path: Path) -> None:
    """Writes text to a file atomically."""
    try:
        replace_file(path, text.encode())
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
