"""`autotune collect`: datasets of measured programs. What it needs is imported when it runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from autotune.cli.errors import INTERRUPTED, bad_input


def collect(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="Configuration file (YAML) with `collect`.")],
    minutes: Annotated[float | None, typer.Option(min=0, help="Minutes after which this sitting ends.")] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Any configuration key, dotted; again for more."),
    ] = None,
    pool: Annotated[str | None, typer.Option(help="local, ray, rpc://HOST:PORT?key=NAME, or replay:FILE.")] = None,
    token_file: Annotated[str | None, typer.Option(help="File with the token of RPC devices.")] = None,
    output: Annotated[str | None, typer.Option(help="The run folder.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show nothing but problems.")] = False,
) -> None:
    """Collects a dataset of measured programs; goes on with what an earlier sitting measured."""
    with bad_input():
        from rich.console import Console

        from autotune.cli.dataset import summary_tables
        from autotune.collect.collection import collect as sit
        from autotune.config import load_config, parse_overrides
        from autotune.report.progress import LiveProgress
        from costmodel.dataset.stats import stats

        given = {"measure.pool": pool, "measure.token_file": token_file, "output": output}
        given = {key: value for key, value in given.items() if value is not None}
        loaded = load_config(config, {**parse_overrides(overrides or []), **given})
        console = Console()
        if not console.is_terminal:
            console.width = 120

        def say(text: str) -> None:
            if not quiet:
                console.print(text, highlight=False, markup=False, soft_wrap=True)

        sitting = sit(loaded, str(config), minutes, [] if quiet else [LiveProgress(console)], say)
        for problem in sitting.problems:
            typer.echo(problem, err=True)
        if sitting.dataset is not None and not quiet:
            for table in summary_tables(stats(sitting.dataset)):
                console.print(table)
        say(f"{sitting.measured} programs measured in this sitting, {sitting.trials} of {sitting.total} in all")
        say(f"everything is in {sitting.folder}")
    if sitting.interrupted:
        again = " ".join(sys.argv[1:])
        typer.echo(f"stopped; every finished trial is kept. To go on: autotune {again}", err=True)
        raise typer.Exit(INTERRUPTED)
    if not sitting.complete:
        say("the same command goes on")
