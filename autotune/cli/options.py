"""Options that several commands have, and what all of them do with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status

    from autotune.config import RunConfig

Config = Annotated[
    Path,
    typer.Argument(metavar="CONFIG", help="Configuration file (YAML), .onnx file, or a name of `autotune models`."),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Any configuration key, dotted; again for more."),
]
Pool = Annotated[str | None, typer.Option(help="local, ray, rpc://HOST:PORT?key=NAME, or replay:FILE.")]
TokenFile = Annotated[str | None, typer.Option(help="File with the token of RPC devices.")]
RunFolder = Annotated[str | None, typer.Option(help="The run folder.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show nothing but problems.")]


def load(path: Path, overrides: list[str] | None, given: Mapping[str, Any] | None = None) -> RunConfig:
    """Reads the configuration of a command.

    Args:
        path: its file; or a model, an .onnx file or the name of a known network, whose configuration has defaults.
        overrides: what `--set` gave.
        given: dotted key -> what an option of its own gave; None: nothing.
    """
    from autotune.config import config_of, load_config, parse_overrides

    named = {key: value for key, value in (given or {}).items() if value is not None}
    changes = {**parse_overrides(overrides or []), **named}
    if not _is_model(path):
        return load_config(path, changes)
    from autotune.naming import file_name

    return config_of({"name": file_name(path.stem), "model": str(path)}, changes, str(path))


def _is_model(path: Path) -> bool:
    """Whether a command is given a model: an .onnx file, or a known network's name where no file has it."""
    if path.suffix == ".onnx":
        return True
    if path.suffix or path.exists():
        return False
    from autotune.graph.onnx_model import ZOO
    from autotune.graph.zoo import BUILDERS

    return str(path) in ZOO or str(path) in BUILDERS


def console_for(piped: int, stderr: bool = False) -> Console:
    """Where a command shows its progress, `piped` characters wide where that is no terminal."""
    from rich.console import Console

    console = Console(stderr=stderr)
    if not console.is_terminal:
        console.width = piped
    return console


@contextmanager
def working(on: str) -> Iterator[Status]:
    """Shows on standard error what a command works on, where that is a terminal, until the block ends.

    Yields:
        Has `update`, to show another sentence, and `console`, to print lines above it.
    """
    with console_for(80, stderr=True).status(on) as status:
        yield status


def check_json(path: Path | None, option: str = "--json") -> None:
    """Raises ConfigError where a file that is to be written has no folder."""
    from autotune.config import ConfigError

    if path is not None and not path.absolute().parent.is_dir():
        raise ConfigError(f"`{option}` must be a file in an existing folder, but got {path}")
