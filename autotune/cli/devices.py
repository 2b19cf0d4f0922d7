"""`autotune devices`: what this machine has to run kernels on. What it needs is imported when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autotune.cli.errors import bad_input, fail


def devices(
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON document.")] = False,
    probe_again: Annotated[bool, typer.Option(help="Measure the processor's figures anew.")] = False,
    figures: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Take the figures of a file from now on, `processor.json` of a run."),
    ] = None,
) -> None:
    """Shows processor, GPUs and simulators as targets, and what was probed of the processor."""
    with bad_input():
        if probe_again and figures is not None:
            fail(f"`--probe-again` must stand without `--figures`, but got --figures {figures}")
        from autotune.run import devices as machine

        try:
            found = machine.facts(probe_again, figures)
        except machine.FiguresError as error:
            fail(str(error))
        typer.echo(machine.as_json(found) if as_json else machine.text(found))
