"""The command line, put together of its families of commands. What a command needs is imported when it runs."""

from __future__ import annotations

import io
import sys
from typing import Annotated

import typer

from autotune import __version__
from autotune.cli import cache, database, inspect, network, results, run, workers
from autotune.cli.options import KeyCommand
from autotune.extensions import extensions

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)
for extension in extensions():
    extension.add_commands(app)
app.add_typer(database.app, name="database")
app.command()(inspect.devices)
app.command()(workers.worker)
app.command()(workers.tracker)
app.command(cls=KeyCommand)(run.run)
app.command(cls=KeyCommand)(inspect.lower)
app.command(cls=KeyCommand)(inspect.tasks)
app.command()(inspect.models)
app.command("compile", cls=KeyCommand)(network.compile_command)
app.command(cls=KeyCommand)(network.bench)
app.command()(cache.cache)
app.command(cls=KeyCommand)(run.sweep)
app.command()(results.track)
app.command()(results.ui)
app.command()(results.report)
app.command()(inspect.schema)


def main() -> None:
    """Entry point."""
    _accept_any_text()
    app()


def _accept_any_text() -> None:
    """Has what a terminal's encoding lacks written as an escape, in place of an error that ends the run."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"autotune {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Tensor programs made fast by search."""
