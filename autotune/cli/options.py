"""Options that several commands have, and what all of them do with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status

    from autotune.config import RunConfig

USE = "Use"
MACHINES = "Measure on other machines"
RESEARCH = "Research"
"""Title of a panel of commands in `autotune --help`, as the two above."""

KEYS = {
    "trials": "trials",
    "seed": "seed",
    "output": "output",
    "target": "target",
    "lock": "lock",
    "pool": "measure.pool",
    "token_file": "measure.token_file",
    "track": "tracking.backend",
    "tracking_uri": "tracking.uri",
}
"""Parameter of a `KeyCommand` → dotted key of the configuration that it sets and whose description is its help."""

Config = Annotated[
    Path,
    typer.Argument(metavar="CONFIG", help="Configuration file (YAML), .onnx file, or a name of `autotune models`."),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Configuration key, dotted, and its value; repeat for more."),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print problems only.")]
DatasetFolder = Annotated[Path, typer.Argument(metavar="DATASET", help="Folder of a dataset, or: shipped.")]
Json = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="File for the figures as JSON.")]
Seed = Annotated[int, typer.Option(min=0, help="Random seed.")]
Track = Annotated[str | None, typer.Option(help="Tracking of models: mlflow or none; by default mlflow if installed.")]
Uri = Annotated[
    str | None,
    typer.Option(help="Tracking store: sqlite:///FILE or the address of a server; by default runs/mlflow.db."),
]


class KeyCommand(TyperCommand):
    """A command on a configuration: options named in `KEYS` set its keys, whose sections describe them."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Describes the options only now, as the sections take longer to import than `autotune --help` to run."""
        parameters: list[Any] = super().get_params(ctx)
        for parameter in parameters:
            if parameter.name in KEYS and parameter.help is None:
                parameter.help = make_help(KEYS[parameter.name])
        return parameters


def make_help(key: str) -> str:
    """Makes the help of an option from the description and default of the key that it sets, in Rich's markup."""
    from rich.markup import escape

    from autotune.config import find_default, find_description

    default = find_default(key)
    shown = "" if default is None else f" [default: {default}]"
    return escape(find_description(key).replace("; null: ", "; by default ") + shown)


def load(ctx: typer.Context, overrides: Mapping[str, Any] | None = None) -> RunConfig:
    """Reads the configuration of a command with the parameters `Config` and `Overrides`.

    The argument may be a model, an .onnx file or the name of a known network, in place of a file of keys.

    Args:
        ctx: context of the command; its options in `KEYS` that are given win over `--set`.
        overrides: further values by dotted key.
    """
    from autotune.config import load_config, make_config, parse_overrides

    options = {key: ctx.params.get(name) for name, key in KEYS.items()}
    named = {key: value for key, value in options.items() if value is not None}
    path: Path = ctx.params["config"]
    changes = {**parse_overrides(ctx.params["overrides"] or []), **named, **(overrides or {})}
    if not _is_model(path):
        return load_config(path, changes)
    from autotune.naming import file_name

    return make_config({"name": file_name(path.stem), "model": str(path)}, changes, str(path))


def _is_model(path: Path) -> bool:
    """Tells a model, an .onnx file or a known network's name that no file has, from a file of keys."""
    if path.suffix == ".onnx":
        return True
    if path.suffix or path.exists():
        return False
    from autotune.graph.frontends.onnx.model import ZOO
    from autotune.graph.zoo import BUILDERS

    return str(path) in ZOO or str(path) in BUILDERS


def console_for(width: int, stderr: bool = False) -> Console:
    """Makes a console for progress, `width` characters wide where it is no terminal."""
    from rich.console import Console

    console = Console(stderr=stderr)
    if not console.is_terminal:
        console.width = width
    return console


@contextmanager
def working(on: str) -> Iterator[Status]:
    """Shows on standard error what a command works on, where that is a terminal, until the block ends.

    Yields:
        Has `update`, to show another sentence, and `console`, to print lines above it.
    """
    with console_for(80, stderr=True).status(on) as status:
        yield status


def tell(text: str) -> None:
    """Prints a sentence on standard error."""
    typer.echo(text, err=True)


def check_json(path: Path | None, option: str = "--json") -> None:
    """Raises ConfigError where a file that is to be written has no folder."""
    from autotune.config import ConfigError

    if path is not None and not path.absolute().parent.is_dir():
        raise ConfigError(f"`{option}` must be a file in an existing folder, but got {path}")
