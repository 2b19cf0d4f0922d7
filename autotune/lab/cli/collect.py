"""`autotune collect`: datasets of measured programs. Imports wait until a command runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from autotune.cli.errors import INTERRUPT_STATUS, bad_input
from autotune.cli.options import Overrides, Quiet, console_for, load


def collect(
    ctx: typer.Context,
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="Configuration file (YAML) with `collect`.")],
    minutes: Annotated[
        float | None, typer.Option(min=0, help="Minutes after which this session ends; by default no limit.")
    ] = None,
    overrides: Overrides = None,
    pool: str | None = None,
    token_file: str | None = None,
    output: str | None = None,
    quiet: Quiet = False,
) -> None:
    """Collect a dataset of measured programs, continuing an earlier session."""
    with bad_input(config=config):
        from autotune.lab.cli.dataset import summary_tables
        from autotune.lab.collect.collection import collect as measure
        from autotune.lab.collect.items import collect_section
        from autotune.lab.collect.pooled import collect_pools
        from autotune.lab.dataset.stats import stats
        from autotune.report.progress import LiveProgress

        loaded = load(ctx)
        console = console_for(120)

        def say(text: str) -> None:
            if not quiet:
                console.print(text, highlight=False, markup=False, soft_wrap=True)

        if collect_section(loaded).pools is not None:
            session = collect_pools(loaded, minutes, say)
        else:
            session = measure(loaded, minutes, [] if quiet else [LiveProgress(console)], say)
        for problem in session.problems:
            typer.echo(problem, err=True)
        if session.dataset is not None and not quiet:
            for table in summary_tables(stats(session.dataset)):
                console.print(table)
        say(f"{session.measurements} programs measured in this session, {session.trials} of {session.total} in all")
        say(f"everything is in {session.folder}")
    if session.interrupted:
        typer.echo(f"stopped; every finished trial is kept. To go on: autotune {' '.join(sys.argv[1:])}", err=True)
        raise typer.Exit(INTERRUPT_STATUS)
    if not session.complete:
        say("the same command goes on")
