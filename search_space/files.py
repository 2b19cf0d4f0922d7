"""Files that are written whole or not at all, by however many threads, processes and machines at the same time."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_ATTEMPTS = 100
"""Random names that are tried for a partial file."""
_NAME = 50
"""Characters of a file's name in that of its partial file: systems take 255 bytes, and a character may have four."""


@contextmanager
def replacing(path: Path, private: bool = False) -> Iterator[Path]:
    """Yields an empty file beside `path` that replaces it at the end, or is removed if the block raises.

    Its name is random: a process id is unique neither among threads nor among containers that share a volume.
    A process that has the old file open or mapped keeps reading the old file.

    Args:
        path: file to write.
        private: whether this user alone may read it; otherwise the process's mask decides.

    Raises:
        OSError: the folder is missing or cannot be written to.
    """
    partial = _create_partial(path, 0o600 if private else 0o666)
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def replace_file(path: Path, *parts: bytes | memoryview, private: bool = False) -> None:
    """Writes the parts of a file one after the other, see `replacing`."""
    with replacing(path, private) as partial, partial.open("wb") as file:
        for part in parts:
            file.write(part)


def _create_partial(path: Path, mode: int) -> Path:
    """Creates an empty file of an unused name; the name begins with a dot and the name of `path`."""
    for _ in range(_ATTEMPTS):
        partial = path.with_name(f".{path.name[:_NAME]}.{secrets.token_hex(8)}")
        try:
            os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, mode))
        except FileExistsError:
            continue
        return partial
    raise FileExistsError(f"{path.parent}: a partial file must have a name of its own, but {_ATTEMPTS} were taken")
