"""`autotune database`: schedules that were found before. Imports wait until a command runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autotune.cli.errors import bad_input, fail

app = typer.Typer(
    no_args_is_help=True, help="Manage the schedules that searches begin with: list, export, merge, verify."
)

Name = Annotated[str, typer.Argument(metavar="DATABASE", help="shipped, own (yours and the shipped one), or a file.")]

Match = Annotated[
    str,
    typer.Option("--match", metavar="TEXT", help="Text in the workload or sketch of an entry; by default all entries."),
]


@app.command("list")
def list_command(
    name: Name = "own",
    match: Match = "",
) -> None:
    """List the entries of a database."""
    with bad_input():
        from rich.console import Console
        from rich.table import Table

        from autotune.tuner.database import open_schedules
        from autotune.units import latency

        database = open_schedules(name)
        table = Table(box=None, header_style="bold")
        for head in ("workload", "target", "lanes", "threads", "cache", "sketch", "time", "machine"):
            table.add_column(head, overflow="fold")
        shown = 0
        for entry in database:
            if match in entry.workload.key or match in entry.sketch:
                facts = (entry.target, str(entry.lanes), str(entry.threads), entry.cache, entry.sketch)
                table.add_row(entry.workload.key, *facts, latency(entry.seconds), entry.machine)
                shown += 1
        if shown:
            Console(width=200).print(table)
        typer.echo(f"{shown} of {len(database)} entries")


@app.command()
def export(
    records: Annotated[list[Path], typer.Argument(metavar="RECORDS", help="Records files, or run folders.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="File to write, one line per entry.")],
    note: Annotated[
        str, typer.Option("--note", metavar="TEXT", help="Note to store with each entry; none by default.")
    ] = "",
) -> None:
    """Export the fastest schedules of runs as a database, to merge or to contribute."""
    with bad_input():
        from autotune.tuner.export import select_entries
        from measure.database import Database

        entries = []
        for path in records:
            with Database(path / "records.jsonl" if path.is_dir() else path, readonly=True) as kept:
                entries += list(select_entries(kept, note))
        from autotune.tuner.database import ScheduleDatabase

        database = ScheduleDatabase(entries)
        if not len(database):
            fail("records must hold a schedule of a search space that worked, but got none")
        database.write(output)
        typer.echo(f"{len(database)} entries are in {output}")


@app.command()
def merge(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="Databases to add.")],
    into: Annotated[
        Path | None, typer.Option("--into", metavar="FILE", help="Database to add to; by default your own.")
    ] = None,
) -> None:
    """Merge databases into your own, keeping the fastest schedule of each workload, target and machine."""
    with bad_input():
        from autotune.tuner.database import ScheduleDatabase
        from autotune.tuner.database.locations import own_path

        path = into or own_path()
        before = ScheduleDatabase.read(path) if path.exists() else ScheduleDatabase()
        after = before.merge(ScheduleDatabase.read(file) for file in files)
        known = {entry.to_line() for entry in before}
        changed = sum(entry.to_line() not in known for entry in after)
        after.write(path)
        typer.echo(f"{path}: {len(after)} entries, {changed} of them new or faster")


@app.command()
def verify(
    name: Name = "own",
    match: Match = "",
    most: Annotated[
        int | None, typer.Option("--most", min=1, help="Number of entries to measure; by default all.")
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(min=0, help="Minutes after which no further entry starts; by default no limit.")
    ] = None,
) -> None:
    """Measure the entries that fit this machine against the schedules chosen without them, and check their outputs."""
    with bad_input():
        from autotune.tuner.database import open_schedules
        from autotune.tuner.verification import verify as check

        entries = [e for e in open_schedules(name) if match in e.workload.key or match in e.sketch]
        found = check(entries[:most], minutes, typer.echo)
        typer.echo(found.summary)
    if found.wrong:
        raise typer.Exit(1)
