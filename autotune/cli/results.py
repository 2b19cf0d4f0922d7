"""`autotune track`, `ui` and `report`: runs that have ended. What they need is imported when they run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autotune.cli.errors import bad_input


def track(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Run folder; more than one will do.")],
) -> None:
    """Uploads what a tracking server has missed of a run."""
    with bad_input():
        from autotune.tracking.browser import track as upload

        for folder in runs:
            typer.echo(f"everything of {folder} is in {upload(folder)}")


def ui(
    folder: Annotated[
        Path,
        typer.Argument(metavar="[FOLDER]", help="Folder that run folders lie in, or one of them.", show_default=True),
    ] = Path("runs"),
    uri: Annotated[str | None, typer.Option(help="Store to show; by default that of the folder.")] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="To listen on; 0: any that is free.")] = 5000,
) -> None:
    """Shows runs in MLflow's browser until Ctrl-C."""
    with bad_input():
        from autotune.tracking.browser import show

        show(folder, uri, port, typer.echo)


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders, or records files.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write; report.html in the first run by default.")
    ] = None,
) -> None:
    """Writes a page of HTML on one or more runs: tuning curves, tables, failures, and how they compare."""
    with bad_input():
        from autotune.report.html import write_report

        typer.echo(f"the report is {write_report(runs, output)}")
