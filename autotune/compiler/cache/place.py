"""Where the cache lies: what a configuration says, what the environment says, or the user's cache folder."""

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
"""In place of a folder: nothing is kept."""


def folder_of(given: str | None = None) -> Path | None:
    """The cache's folder; None where there is none.

    Args:
        given: of the configuration: a folder or `none`; None: what `AUTOTUNE_CACHE` says, else a folder `kernels` where
            users keep what can be made again.
    """
    said = given or os.environ.get(VARIABLE) or str(cache_folder() / "kernels")
    return None if said == NONE else Path(said).expanduser()


def open_networks(given: str | None = None) -> NetworkCache | None:
    """Executables in the cache, see `folder_of`.

    Raises:
        CacheError: a folder that others may write to.
    """
    folder = folder_of(given)
    if folder is None:
        return None
    Store(folder)  # it is refused where others may write to it
    return NetworkCache(Store(folder / FOLDER, LIMIT))


def open_cache(given: str | None = None) -> KernelCache | None:
    """The cache, see `folder_of`.

    Raises:
        CacheError: a folder that others may write to.
    """
    from autotune.compiler.cache.kernels import KernelCache  # who asks for networks waits for no rules of schedules

    folder = folder_of(given)
    return None if folder is None else KernelCache(Store(folder))
