"""Options that several commands have, and what all of them do with them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from autotune.config import RunConfig

Config = Annotated[Path, typer.Argument(metavar="CONFIG", help="Configuration file (YAML).")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Any configuration key, dotted; again for more."),
]
Pool = Annotated[str | None, typer.Option(help="local, ray, rpc://HOST:PORT?key=NAME, or replay:FILE.")]
TokenFile = Annotated[str | None, typer.Option(help="File with the token of RPC devices.")]
RunFolder = Annotated[str | None, typer.Option(help="The run folder.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show nothing but problems.")]


def load(path: Path, overrides: list[str] | None, given: Mapping[str, Any] | None = None) -> RunConfig:
    """The configuration of a command.

    Args:
        path: of its file.
        overrides: what `--set` gave.
        given: dotted key -> what an option of its own gave; None: nothing.
    """
    from autotune.config import load_config, parse_overrides

    named = {key: value for key, value in (given or {}).items() if value is not None}
    return load_config(path, {**parse_overrides(overrides or []), **named})


def console_for(piped: int, stderr: bool = False) -> Console:
    """Where a command shows its progress, `piped` characters wide where that is no terminal."""
    from rich.console import Console

    console = Console(stderr=stderr)
    if not console.is_terminal:
        console.width = piped
    return console


def check_json(path: Path | None, option: str = "--json") -> None:
    """Raises ConfigError where a file that is to be written has no folder."""
    from autotune.config import ConfigError

    if path is not None and not path.absolute().parent.is_dir():
        raise ConfigError(f"`{option}` must be a file in an existing folder, but got {path}")
