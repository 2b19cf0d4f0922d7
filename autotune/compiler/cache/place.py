"""Folder of the cache: from the configuration, the environment, or the user's cache folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.compiler.cache.networks import FOLDER, LIMIT, NetworkCache
from autotune.compiler.cache.store import Store
from search_space.folders import cache_folder

if TYPE_CHECKING:
    from autotune.compiler.cache.kernels import KernelCache

VARIABLE = "AUTOTUNE_CACHE"
NONE = "none"
"""Value in place of a folder: nothing is cached."""


def folder_of(given: str | None = None) -> Path | None:
    """Returns the cache's folder; None if caching is off.

    Args:
        given: value of the configuration: a folder or `none`; None: the value of `AUTOTUNE_CACHE`, else `kernels` in
            the user's cache folder.
    """
    said = given or os.environ.get(VARIABLE) or str(cache_folder() / "kernels")
    return None if said == NONE else Path(said).expanduser()


def open_networks(given: str | None = None) -> NetworkCache | None:
    """Opens the cache of whole executables, see `folder_of`.

    Raises:
        CacheError: other users may write to the folder.
    """
    folder = folder_of(given)
    if folder is None:
        return None
    Store(folder)  # raises CacheError if other users may write to it
    return NetworkCache(Store(folder / FOLDER, LIMIT))


def open_cache(given: str | None = None) -> KernelCache | None:
    """Opens the cache of kernels, see `folder_of`.

    Raises:
        CacheError: other users may write to the folder.
    """
    from autotune.compiler.cache.kernels import KernelCache  # imported late: it imports schedule rules

    folder = folder_of(given)
    return None if folder is None else KernelCache(Store(folder))
