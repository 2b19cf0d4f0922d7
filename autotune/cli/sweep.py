"""`autotune sweep`: designs of an accelerator beside each other. What it needs is imported when it runs."""

from __future__ import annotations

from typing import Annotated

import typer

from autotune.cli.errors import INTERRUPTED, bad_input, fail
from autotune.cli.options import Config, Overrides, load


def sweep(
    config: Config,
    vary: Annotated[
        list[str] | None,
        typer.Option("--vary", metavar="FIELD=VALUE,VALUE", help="Field of the design and its values; again for more."),
    ] = None,
    trials: Annotated[int | None, typer.Option(help="Candidates to measure on each design.")] = None,
    output: Annotated[str | None, typer.Option(help="Folder of designs, records and the picture.")] = None,
    overrides: Overrides = None,
) -> None:
    """Tunes for many designs of an accelerator: latency against memory."""
    with bad_input(config=config):
        from autotune.run import sweep as designs
        from autotune.units import latency

        loaded = load(config, overrides, {"trials": trials, "output": output})
        variations = designs.parse_variations(vary or [], designs.configuration_of(loaded))
        folder = loaded.folder if output else loaded.folder.with_name(f"{loaded.folder.name}_sweep")
        points = designs.sweep(loaded, variations, folder, typer.echo)
        best = designs.front(points)
        typer.echo("\nnone is better in both memory and time:")
        for point in best:
            typer.echo(f"{point.memory_bytes / 1024:8.0f} KiB {latency(point.seconds):>10}  {point.name}")
        typer.echo(f"everything is in {folder}")
    if any(point.interrupted for point in points):
        typer.echo("stopped; every finished trial is kept, and the same command goes on", err=True)
        raise typer.Exit(INTERRUPTED)
    if not best:
        fail("no design has a schedule for every task")
