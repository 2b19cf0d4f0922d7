"""The command line, put together of its families of commands. What a command needs is imported when it runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from autotune import __version__
from autotune.cli import collect, costmodel, dataset, devices, inspect, network, results, run, sweep, workers
from autotune.cli.errors import bad_input

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)
app.command()(collect.collect)
app.add_typer(dataset.app, name="dataset")
app.add_typer(costmodel.app, name="costmodel")
app.command()(devices.devices)
app.command()(workers.worker)
app.command()(workers.tracker)
app.command()(run.run)
app.command()(inspect.lower)
app.command()(inspect.tasks)
app.command("compile")(network.compile_command)
app.command()(network.bench)
app.command()(sweep.sweep)
app.command()(results.track)
app.command()(results.ui)
app.command()(results.report)


def main() -> None:
    """Entry point."""
    app()


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


@app.command()
def schema(
    output: Annotated[Path | None, typer.Option(help="File to write; standard output by default.")] = None,
) -> None:
    """Prints the JSON schema of configuration files."""
    with bad_input():
        from autotune.config import json_schema

        text = json.dumps(json_schema(), indent=2) + "\n"
        if output is None:
            typer.echo(text, nl=False)
        else:
            output.write_text(text)
