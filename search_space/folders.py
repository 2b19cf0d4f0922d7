"""Folders of this user: for files that can be recomputed, for data, and for locks.

A user without a home has one folder in the temporary folder for all three. Any user may create a folder of its name
there, so it is used only if no other user can write to it.
"""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

SESSIONS = Path("/run/user")
"""Folder that holds the folders of login sessions, by user id."""


class FolderError(OSError):
    """An error for a folder of this user to which another user may write."""


def cache_folder() -> Path:
    """Returns the folder for files that can be recomputed; it may not exist yet.

    Raises:
        FolderError: the user has no home, and another user owns the temporary folder.
    """
    return _of_user("XDG_CACHE_HOME", "~/.cache")


def data_folder() -> Path:
    """Returns the folder for files that cannot be recomputed; it may not exist yet.

    Raises:
        FolderError: the user has no home, and another user owns the temporary folder.
    """
    return _of_user("XDG_DATA_HOME", "~/.local/share")


def runtime_folder() -> Path:
    """Returns the folder for locks, which exists.

    It is `$XDG_RUNTIME_DIR`, which login sessions set, or else its usual path, if no other user can write to it.

    Raises:
        FolderError: neither is there, and another user owns the temporary folder.
    """
    for place in (os.environ.get("XDG_RUNTIME_DIR", ""), str(SESSIONS / str(os.getuid()))):
        if os.path.isabs(place) and _is_private(Path(place)):
            return Path(place)
    return _temporary("XDG_RUNTIME_DIR")


def _of_user(variable: str, usual: str) -> Path:
    base = os.environ.get(variable, "")
    if not os.path.isabs(base):
        base = os.path.expanduser(usual)
    return Path(base) / "autotune" if os.path.isabs(base) else _temporary(variable)


def _temporary(variable: str) -> Path:
    """Returns this user's folder in the temporary folder, and creates it if it does not exist.

    Args:
        variable: environment variable that can name another folder, for the error message.

    Raises:
        FolderError: another user owns the folder of this name, or can write to it.
    """
    own = Path(tempfile.gettempdir()) / f"autotune-{os.getuid()}"
    with suppress(FileExistsError):
        own.mkdir(mode=0o700)
    if not _is_private(own):
        raise FolderError(
            f"a folder of this user must be one that nobody else may write to, but got {own}; remove it, or set "
            f"`{variable}` to a folder of your own"
        )
    return own


def _is_private(folder: Path) -> bool:
    """Tells whether a folder, no link, belongs to this user and no other user may write to it."""
    try:
        facts = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.getuid() and not facts.st_mode & 0o022
