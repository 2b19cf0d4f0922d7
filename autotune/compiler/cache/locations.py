"""Folder of the cache: from the configuration, the environment, or the user's cache folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.compiler.cache.networks import FOLDER, LIMIT, NetworkCache
from autotune.compiler.cache.store import FolderCache
from search_space.folders import cache_folder

if TYPE_CHECKING:
    from autotune.compiler.cache.kernels import KernelCache

VARIABLE = "AUTOTUNE_CACHE"
NONE = "none"
"""Value in place of a folder: nothing is cached."""


def resolve_folder(setting: str | None = None) -> Path | None:
    """Returns the cache's folder; None if caching is off.

    Args:
        setting: value of the configuration: a folder or `none`; None: the value of `AUTOTUNE_CACHE`, else `kernels`
            in the user's cache folder.
    """
    said = setting or os.environ.get(VARIABLE) or str(cache_folder() / "kernels")
    return None if said == NONE else Path(said).expanduser()


def open_networks(setting: str | None = None) -> NetworkCache | None:
    """Opens the cache of whole executables, see `resolve_folder`.

    Raises:
        CacheError: other users may write to the folder.
    """
    folder = resolve_folder(setting)
    if folder is None:
        return None
    FolderCache(folder)  # raises CacheError if other users may write to it
    return NetworkCache(FolderCache(folder / FOLDER, LIMIT))


def open_cache(setting: str | None = None) -> KernelCache | None:
    """Opens the cache of kernels, see `resolve_folder`.

    Raises:
        CacheError: other users may write to the folder.
    """
    from autotune.compiler.cache.kernels import KernelCache  # imported late: it imports schedule rules

    folder = resolve_folder(setting)
    return None if folder is None else KernelCache(FolderCache(folder))
