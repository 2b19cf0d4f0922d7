"""`autotune costmodel sequences`: a model of schedule primitives alone. Imports wait until a command runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autotune.cli.errors import bad_input
from autotune.cli.options import Json, check_json, tell


def sequences_command(
    folder: Annotated[Path, typer.Argument(metavar="SEQUENCES", help="Folder of `autotune dataset sequences`.")],
    share: Annotated[float, typer.Option(help="Share of the tasks to test on, drawn by --split-seed.")] = 0.1,
    split_seed: Annotated[int, typer.Option(min=0, help="Random seed of that draw.")] = 0,
    weights: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="JSON file in place of --share: network → workload key → count."),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Number of models, each with its own seed.")] = 1,
    steps: Annotated[int, typer.Option(min=1, help="Number of training steps.")] = 1500,
    json_file: Json = None,
) -> None:
    """Train TLP's model, which ranks programs by their schedule primitives, and test it on other tasks."""
    with bad_input():
        from rich.console import Console

        from autotune.lab.sequences.model import Options
        from autotune.lab.sequences.scored import scored_sequences
        from autotune.lab.study_tables import figures_table
        from autotune.run_files import write_json

        check_json(json_file)
        scored = scored_sequences(folder, share, split_seed, weights, seeds, Options(steps=steps), tell)
        console = Console(width=160)
        rows = [((name,), scores.values()) for name, scores in scored.scores.items()]
        console.print(figures_table(("model",), 1, rows))
        console.print(
            f"learned from {scored.learned_tasks:,} tasks, {scored.learned_programs:,} programs; scored on "
            f"{len(scored.names):,} tasks; intervals of 95 % over tasks and {seeds} seeds",
            highlight=False,
        )
        if json_file is not None:
            write_json(scored.to_json(), json_file)
