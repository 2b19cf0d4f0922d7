"""`autotune run` and `autotune sweep`, which tune. Imports wait until a command runs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from autotune.cli.errors import INTERRUPT_STATUS, bad_input, fail
from autotune.cli.options import Config, Overrides, Quiet, check_json, console_for, load, tell


def run(
    ctx: typer.Context,
    config: Config,
    trials: int | None = None,
    seed: int | None = None,
    overrides: Overrides = None,
    pool: str | None = None,
    token_file: str | None = None,
    output: str | None = None,
    track: str | None = None,
    tracking_uri: str | None = None,
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="Exit without waiting for the upload, which continues by itself.")
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Continue from the records of an earlier run.")] = False,
    json_file: Annotated[
        Path | None,
        typer.Option("--json", metavar="FILE", help="File for the summary as JSON; - for standard output."),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Tune a network or an operator."""
    hint = f"To go on: autotune {' '.join([*sys.argv[1:], *([] if resume else ['--resume'])])}"
    with bad_input(hint, config):
        from autotune.report.progress import LiveProgress
        from autotune.report.tables import PIPE_WIDTH
        from autotune.report.terminal import print_results
        from autotune.run import run as runner
        from autotune.run_files import write_json

        check_json(json_file)
        loaded = load(ctx, {"tracking.wait_s": 0.0} if no_wait else None)
        console = console_for(PIPE_WIDTH, stderr=str(json_file) == "-")
        shown = [] if quiet else [LiveProgress(console)]

        def say(text: str) -> None:
            if not quiet:
                console.print(text, highlight=False, markup=False, soft_wrap=True)

        def show(outcome: runner.Outcome) -> None:
            for note in outcome.notes:
                tell(note)
            if str(json_file) == "-":
                typer.echo(json.dumps(outcome.document, indent=2))
            elif json_file is not None:
                write_json(outcome.document, json_file)
            if not quiet:
                network = outcome.document.get("network")
                print_results(console, outcome.results, outcome.references, outcome.seconds, network)
                say(f"everything is in {outcome.folder}")

        try:
            outcome = runner.run(loaded, str(config), resume, shown, say, show)
        finally:
            for progress in shown:
                progress.stop()
        if outcome.tracking_note:
            tell(outcome.tracking_note)
    if outcome.interrupted:
        tell(f"stopped; every finished trial is kept. {hint}")
        raise typer.Exit(INTERRUPT_STATUS)
    if outcome.problems:
        fail("\n".join(outcome.problems))


def sweep(
    ctx: typer.Context,
    config: Config,
    vary: Annotated[
        list[str] | None,
        typer.Option(
            "--vary", metavar="FIELD=VALUE,VALUE", help="Field of the design and its values; repeat for more."
        ),
    ] = None,
    trials: Annotated[
        int | None, typer.Option(help="Candidates to measure on each design; by default `trials` of CONFIG.")
    ] = None,
    output: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Folder of all results; by default the run folder with _sweep.")
    ] = None,
    overrides: Overrides = None,
) -> None:
    """Tune for many designs of an accelerator, and compare their latency and memory."""
    with bad_input(config=config):
        from autotune.run import sweep as designs
        from autotune.units import latency

        loaded = load(ctx)
        variations = designs.parse_variations(vary or [], designs.design_fields(loaded))
        folder = loaded.folder if output else loaded.folder.with_name(f"{loaded.folder.name}_sweep")
        points = designs.sweep(loaded, variations, folder, typer.echo)
        best = designs.front(points)
        typer.echo("\nnone is better in both memory and time:")
        for point in best:
            typer.echo(f"{point.memory_bytes / 1024:8.0f} KiB {latency(point.seconds):>10}  {point.name}")
        typer.echo(f"everything is in {folder}")
    if any(point.interrupted for point in points):
        tell("stopped; every finished trial is kept, and the same command goes on")
        raise typer.Exit(INTERRUPT_STATUS)
    if not best:
        fail("no design has a schedule for every task")
