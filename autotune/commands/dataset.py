"""`autotune dataset`: datasets made of records, looked at, merged and split. What it needs is imported when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autotune.commands.blame import bad_input

if TYPE_CHECKING:
    from rich.table import Table

    from costmodel.dataset import Dataset

app = typer.Typer(no_args_is_help=True, help="Datasets of measured programs: build, stats, merge, split.")

Folder = Annotated[Path, typer.Argument(metavar="DATASET", help="Folder of a dataset.")]
Output = Annotated[Path, typer.Option("--output", "-o", help="Folder to write.")]


@app.command()
def build(
    records: Annotated[list[Path], typer.Argument(metavar="RECORDS", help="Records files; more than one will do.")],
    output: Output,
) -> None:
    """Makes a dataset of records, with what `autotune collect` wrote beside them."""
    with bad_input():
        from rich.console import Console

        from autotune.collect.collection import tasks_beside
        from costmodel.dataset.build import build as of_records
        from costmodel.dataset.build import merge as of_datasets
        from measure.database import Database

        parts = []
        for path in records:
            with Database(path, readonly=True) as database:
                parts.append(of_records(database, tasks_beside(path)))
        data = of_datasets(parts)
        data.write(output)
        Console(width=120).print(stats_table(data))


def stats_table(data: Dataset) -> Table:
    """What a dataset holds, a row for each task."""
    from rich.table import Table

    table = Table()
    for task in data.tasks:
        table.add_row(task.name, str(data.count(task)))
    return table
