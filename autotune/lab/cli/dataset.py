"""`autotune dataset`: datasets made of records, looked at, merged and split. Imports wait until a command runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autotune.cli.errors import bad_input
from autotune.cli.options import DatasetFolder, Json, tell

if TYPE_CHECKING:
    from rich.table import Table

    from autotune.lab.dataset.measured_space import MeasuredSpace
    from autotune.lab.dataset.stats import TaskStats

app = typer.Typer(
    no_args_is_help=True,
    help="Make and read datasets of measured programs: build, stats, merge, split, import, export, replay.",
)

Output = Annotated[Path, typer.Option("--output", "-o", help="Folder to write.")]


class Kind(StrEnum):
    """Kinds of splits of a dataset."""

    within = "within"
    task = "task"
    target = "target"
    network = "network"


@app.command()
def build(
    records: Annotated[list[Path], typer.Argument(metavar="RECORDS", help="Records files, one or more.")],
    output: Output,
) -> None:
    """Build a dataset from records and the files of `autotune collect` beside them."""
    with bad_input():
        from autotune.lab.collect.collection import tasks_beside
        from autotune.lab.dataset.stats import stats as figures
        from costmodel.dataset.build import build as of_records
        from costmodel.dataset.build import merge as of_datasets
        from measure.database import Database

        parts = []
        for path in records:
            with Database(path, readonly=True) as database:
                parts.append(of_records(database, tasks_beside(path)))
        data = of_datasets(parts)
        data.write(output)
        _show(figures(data), each=False)


@app.command()
def stats(
    folder: DatasetFolder,
    each: Annotated[bool, typer.Option("--tasks", help="Print a row for each task, too.")] = False,
    json_file: Json = None,
) -> None:
    """Show the contents of a dataset."""
    with bad_input():
        from autotune.lab.dataset.stats import stats as figures
        from autotune.lab.dataset.stats import to_json
        from autotune.run_files import write_json
        from costmodel.dataset import Dataset
        from costmodel.dataset.dataset import dataset_folder

        found = figures(Dataset.open(folder))
        if json_file is not None:
            write_json(to_json(found), json_file)
        _show(found, each)
        files = sorted(dataset_folder(folder).glob("*.parquet"))
        sizes = ", ".join(f"{path.name} {path.stat().st_size / 1e3:.0f} kB" for path in files)
        typer.echo(f"{sum(path.stat().st_size for path in files) / 1e6:.2f} MB: {sizes}")


@app.command()
def sequences(
    logs: Annotated[
        list[Path],
        typer.Argument(metavar="LOG", help="Records of TVM's auto_scheduler (JSON lines, also .gz), or folders."),
    ],
    output: Output,
) -> None:
    """Convert records of TVM's auto_scheduler, such as TenSet's, to sequences of schedule primitives."""
    with bad_input():
        from autotune.lab.sequences import write_shards

        files = [file for path in logs for file in (_logs_in(path) if path.is_dir() else [path])]
        made = write_shards(files, output, tell)
        typer.echo(f"{len(made.names):,} tasks, {sum(made.counts.values()):,} programs are in {output}")


def _logs_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.name.endswith((".json", ".json.gz")))


@app.command()
def merge(
    folders: Annotated[list[Path], typer.Argument(metavar="DATASET", help="Folders of datasets; two or more.")],
    output: Output,
) -> None:
    """Merge datasets into one that has each program once."""
    with bad_input():
        from autotune.lab.dataset.stats import stats as figures
        from costmodel.dataset import Dataset
        from costmodel.dataset.build import merge as of_datasets

        data = of_datasets([Dataset.open(folder) for folder in folders])
        data.write(output)
        _show(figures(data), each=False)


@app.command()
def split(
    folder: DatasetFolder,
    by: Annotated[
        Kind, typer.Option(help="within: programs of every task; task: workloads; target and network: those held out.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="JSON file to write.")],
    share: Annotated[float, typer.Option(help="Share of programs (within) or workloads (task) to test on.")] = 0.2,
    seed: Annotated[int, typer.Option(min=0, help="Random seed of the split.")] = 0,
    hold_out: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Target or network to test on; repeat for more.")
    ] = None,
) -> None:
    """Split the tasks of a dataset into a part to learn from and a part to test on."""
    with bad_input():
        from autotune.config import ConfigError
        from autotune.run_files import write_json
        from costmodel.dataset import Dataset
        from costmodel.dataset import split as splits

        if hold_out and by in (Kind.within, Kind.task):
            raise ConfigError(f"`--hold-out` must go with `--by` target or network, but got --by {by}")
        data, names = Dataset.open(folder), hold_out or []
        if by is Kind.within:
            division = splits.split_within(data, share, seed)
        elif by is Kind.task:
            division = splits.split_by_task(data, share, seed)
        elif by is Kind.target:
            division = splits.split_by_target(data, names)
        else:
            division = splits.split_by_network(data, names)
        write_json(division.to_json(), output)
        for title, parts in (("train", division.train(data)), ("test", division.test(data))):
            typer.echo(f"{title:5} {len(parts):4} tasks, {sum(len(part.rows) for part in parts):6} programs")


@app.command("import")
def import_(
    results: Annotated[Path, typer.Argument(metavar="T4", help="Results in the T4 format, .json or .json.gz.")],
    output: Output,
    space: Annotated[
        Path | None, typer.Option(metavar="T1", help="Space in the T1 format; by default the values that occur.")
    ] = None,
) -> None:
    """Import the results of another tuner as a measured space."""
    with bad_input():
        from autotune.lab.dataset.t4 import read_t4

        measured = read_t4(results, space)
        measured.write(output)
        _describe(measured)


@app.command()
def export(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A measured space, or a dataset with --task.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="T4", help="File to write, .json or .json.gz.")],
    task: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name or key of a task, if FOLDER is a dataset; none by default.")
    ] = None,
    space: Annotated[Path | None, typer.Option(metavar="T1", help="File to write the space to.")] = None,
) -> None:
    """Export a measured space for other tuners, with results in the T4 format and the space in T1."""
    with bad_input():
        from autotune.lab.dataset.knob_space import of_task
        from autotune.lab.dataset.measured_space import MeasuredSpace
        from autotune.lab.dataset.t4 import write_t4
        from costmodel.dataset import Dataset

        measured = MeasuredSpace.open(folder) if task is None else of_task(Dataset.open(folder), task)
        write_t4(measured, output, space)
        _describe(measured)


@app.command()
def replay(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A measured space.")],
    strategy: Annotated[str, typer.Option(help="Search strategy: listing, evolution, random, ...")] = "listing",
    model: Annotated[str, typer.Option(help="Cost model: matern, lightgbm, ...")] = "matern",
    trials: Annotated[int, typer.Option(min=1, help="Number of configurations that a search may try.")] = 200,
    seeds: Annotated[int, typer.Option(min=1, help="Number of searches, each with its own seed.")] = 10,
    batch: Annotated[int, typer.Option(min=1, help="Number of configurations in a round.")] = 1,
    exploration: Annotated[
        float | None,
        typer.Option(
            min=0.0, help="Number of standard deviations added to scores; by default 2 if the model has them, else 0."
        ),
    ] = None,
) -> None:
    """Replay a search strategy on a measured space, and compare it with random search."""
    with bad_input():
        import numpy as np
        from rich.console import Console

        from autotune.lab.dataset.measured_space import MeasuredSpace
        from autotune.lab.methodology import Yardstick
        from autotune.lab.replay import EXPLORATION, Method, play
        from autotune.units import latency
        from costmodel.models import registry
        from costmodel.models.base import UncertainModel

        measured = MeasuredSpace.open(folder)
        if exploration is None:
            exploration = EXPLORATION if issubclass(registry.get(model), UncertainModel) else 0.0
        trials = min(trials, len(measured))
        method = Method(strategy, model, batch=batch, exploration=exploration)
        table = _table("trials", "found", "of the best", "random search", "measuring")
        played = [play(measured, method, seed, trials) for seed in range(seeds)]
        for count in sorted({n for n in (10, 20, 50, 100, 200, 500, 1000, trials) if n <= trials}):
            best = np.array([p.best[min(count, len(p.best)) - 1] for p in played])
            spent = float(np.mean([p.elapsed_seconds[min(count, len(p.elapsed_seconds)) - 1] for p in played]))
            share, random = measured.best / best, measured.best / measured.expected_best(count)
            table.add_row(
                str(count), latency(float(best.mean())), f"{share.mean():.1%}", f"{random:.1%}", f"{spent:.0f} s"
            )
        Console().print(table)
        yardstick = Yardstick(measured)
        searches = [(p.seconds, p.elapsed_seconds) for p in played]
        scores, after = yardstick.score(searches), yardstick.after_end(searches)
        typer.echo(
            f"score {scores.mean():.3f} ({scores.min():.3f} to {scores.max():.3f}): 1 is the best at once, 0 random "
            f"search, over the {yardstick.seconds:.0f} s in which it takes {yardstick.trials} configurations"
        )
        if after.any():
            ends = [p.elapsed_seconds[-1] if len(p.elapsed_seconds) else 0.0 for p in played]
            typer.echo(
                f"searches ended after {np.mean(ends):.0f} s ({min(ends):.0f} to {max(ends):.0f}), with {trials} "
                f"configurations at most; for the rest, {after.mean():.0%} of the time, each keeps the best that it "
                "had by then"
            )


def _describe(results: MeasuredSpace) -> None:
    from autotune.units import latency

    failed = sum(error != "ok" for error in results.errors)
    typer.echo(
        f"{results.space.name}: {len(results.space.parameters)} parameters, {len(results)} configurations, "
        f"{failed} failed, {results.missing} not measured; the fastest takes {latency(results.best)}"
    )


def summary_tables(stats: Sequence[TaskStats]) -> list[Table]:
    """Counts the programs of a dataset by target and by network."""
    by_target: dict[tuple[str, str], list[TaskStats]] = {}
    by_network: dict[tuple[str, str], list[TaskStats]] = {}
    for one in stats:
        by_target.setdefault((one.target, one.machine or "simulated"), []).append(one)
        for name in one.networks or ("(no network)",):
            by_network.setdefault((one.target, name), []).append(one)
    targets = _table("target", "machine", "tasks", "programs", "valid", "random", "search", "failures")
    for (target, machine), group in by_target.items():
        failures = sum((Counter(one.errors) for one in group), Counter[str]())
        classes = ", ".join(f"{error} {count}" for error, count in failures.most_common()) or "none"
        targets.add_row(target, machine, *_counts(group), classes)
    networks = _table("target", "network", "tasks", "programs", "valid", "random", "search", "least valid of a task")
    for (target, name), group in by_network.items():
        networks.add_row(target, name, *_counts(group), str(min(one.valid for one in group)))
    return [targets, networks]


def task_table(stats: Sequence[TaskStats], width: int) -> Table:
    """Describes a dataset in a row for each task, at most `width` characters wide."""
    from autotune.report.tables import Column, fit_table
    from autotune.units import latency

    columns = [
        Column("task", [one.name for one in stats], left=True),
        Column("target", [one.target for one in stats], rank=2, left=True),
        Column("sketches", [str(one.sketches) for one in stats], rank=5),
        Column("programs", [str(one.programs) for one in stats], rank=1),
        Column("valid", [str(one.valid) for one in stats], rank=4),
        Column("random", [str(one.random) for one in stats], rank=6),
        Column("best", [latency(one.best) for one in stats]),
        Column("median", [latency(one.median) for one in stats], rank=3),
        Column("GFLOP/s", [f"{one.gflops:.1f}" for one in stats]),
    ]
    return fit_table(columns, width)


def _counts(group: Sequence[TaskStats]) -> list[str]:
    valid, random = sum(one.valid for one in group), sum(one.random for one in group)
    return [str(n) for n in (len(group), sum(one.programs for one in group), valid, random, valid - random)]


def _show(stats: Sequence[TaskStats], each: bool) -> None:
    from rich.console import Console

    from autotune.report.tables import console_width

    console = Console()
    width = console_width(console)
    console.width = max(width, 140)
    for table in summary_tables(stats):
        console.print(table)
    if each:
        console.width = width
        console.print(task_table(stats, width))


def _table(*titles: str) -> Table:
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    texts = ("target", "machine", "task", "network", "failures")
    for title in titles:
        table.add_column(title, justify="left" if title in texts else "right", no_wrap=title != "failures")
    return table
