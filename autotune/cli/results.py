"""`autotune track`, `ui` and `report`: runs that have ended. Imports wait until a command runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autotune.cli.errors import bad_input


def track(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Run folders, one or more.")],
) -> None:
    """Upload the parts of a run that the tracking server lacks."""
    with bad_input():
        from autotune.tracking.browser import track as upload

        for folder in runs:
            typer.echo(f"everything of {folder} is in {upload(folder)}")


def ui(
    folder: Annotated[
        Path,
        typer.Argument(metavar="[FOLDER]", help="Folder of run folders, or one of them.", show_default=True),
    ] = Path("runs"),
    uri: Annotated[
        str | None,
        typer.Option(help="Store to show: sqlite:///FILE or the address of a server; by default that of the folder."),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0: any free port.")] = 5000,
) -> None:
    """Show runs in MLflow's browser until Ctrl-C."""
    with bad_input():
        from autotune.tracking.browser import show

        show(folder, uri, port, typer.echo)


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders, or records files.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File to write; by default report.html in the first run's folder."),
    ] = None,
) -> None:
    """Write an HTML report on one or more runs, with tuning curves, tables, failures and comparisons."""
    with bad_input():
        from autotune.report.html import write_report

        typer.echo(f"the report is {write_report(runs, output)}")
