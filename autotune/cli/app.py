"""The command line, put together of its families of commands. Imports wait until a command runs."""

from __future__ import annotations

import io
import sys
from typing import Annotated

import typer

from autotune import __version__
from autotune.cli import cache, database, inspect, network, results, run, workers
from autotune.cli.options import MACHINES, RESEARCH, USE, KeyCommand
from autotune.extensions import extensions

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)

app.command(cls=KeyCommand, rich_help_panel=USE)(run.run)
app.command("compile", cls=KeyCommand, rich_help_panel=USE)(network.compile_command)
app.command(cls=KeyCommand, rich_help_panel=USE)(network.bench)
app.command(cls=KeyCommand, rich_help_panel=USE)(inspect.tasks)
app.command(cls=KeyCommand, rich_help_panel=USE)(inspect.lower)
app.command(rich_help_panel=USE)(results.report)
app.command(rich_help_panel=USE)(results.ui)
app.command(rich_help_panel=USE)(results.track)
app.command(rich_help_panel=USE)(inspect.models)
app.command(rich_help_panel=USE)(inspect.devices)
app.command(rich_help_panel=USE)(inspect.schema)
app.command(rich_help_panel=USE)(cache.cache)
app.add_typer(database.app, name="database", rich_help_panel=USE)
app.command(rich_help_panel=MACHINES)(workers.worker)
app.command(rich_help_panel=MACHINES)(workers.tracker)
app.command(cls=KeyCommand, rich_help_panel=RESEARCH)(run.sweep)
for extension in extensions():
    extension.add_commands(app)


def main() -> None:
    """Runs the command line."""
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
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Tune and compile tensor programs."""
