"""`autotune cache`: what compiling has found out before. Imports wait until a command runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autotune.cli.errors import bad_input, fail


def cache(
    clear: Annotated[bool, typer.Option("--clear", help="Remove every entry.")] = False,
    folder: Annotated[
        Path | None, typer.Option(help="Folder of the cache; by default AUTOTUNE_CACHE, else the user's cache folder.")
    ] = None,
) -> None:
    """Show or clear the cache of kernels, choices without trials, and executables."""
    with bad_input():
        from autotune.compiler.cache.locations import NONE, open_cache, open_networks
        from autotune.compiler.cache.store import CacheError

        try:
            given = None if folder is None else str(folder)
            kernels, networks = open_cache(given), open_networks(given)
        except CacheError as error:
            fail(str(error))
        if kernels is None or networks is None:
            typer.echo(f"there is no cache: its folder is said to be {NONE}")
            return
        for store in (kernels.store, networks.store):
            size = store.clear() if clear else store.size()
            entries = f"{size.entries} entr{'y' if size.entries == 1 else 'ies'} of {size.nbytes / 2**20:.1f} MiB"
            if clear:
                typer.echo(f"{store.folder}: removed {entries}")
            else:
                typer.echo(f"{store.folder}: {entries}, at most {store.limit / 2**20:.0f} MiB are kept")
