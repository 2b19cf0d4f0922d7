"""`autotune costmodel study`, `curve`, `importance` and `test`: models on registered pools, by the protocol."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autotune.cli.errors import bad_input
from autotune.cli.options import Json, Track, Uri, check_json, tell, working

if TYPE_CHECKING:
    from autotune.lab.protocol import Pools, Study

PoolsFolder = Annotated[Path, typer.Argument(metavar="POOLS", help="Folder of pools, or: shipped.")]
Models = Annotated[
    str | None,
    typer.Option(
        "--models", metavar="NAME,NAME", help="Models, compared with the first; by default six of the package."
    ),
]
Seeds = Annotated[int, typer.Option(min=1, help="Number of random seeds for each model.")]
Each = Annotated[bool, typer.Option("--tasks", help="Print a row for each task, too.")]
Plots = Annotated[
    Path | None, typer.Option("--plots", metavar="FOLDER", help="Folder for plots of predicted against measured times.")
]


class By(StrEnum):
    """Horizontal axis of a curve."""

    programs = "programs"
    tasks = "tasks"


def study_command(
    folder: PoolsFolder = Path("shipped"),
    models: Models = None,
    seeds: Seeds = 5,
    each: Each = False,
    plots: Plots = None,
    json_file: Json = None,
    track: Track = None,
    tracking_uri: Uri = None,
) -> None:
    """Train models on pools, and score them on the validation networks."""
    with bad_input():
        from autotune.lab import tracked
        from autotune.lab.protocol import Pools, study

        check_json(json_file)
        names = _names(models)
        store, pools = tracked.open_store(track, tracking_uri), Pools.open(folder)
        found = study(pools, "validation", names, seeds, progress=tell)
        _show(found, pools, names, each, plots, json_file)
        if store is not None:
            tracked.track_study(store, "study", found, plots)


def test_command(
    folder: PoolsFolder = Path("shipped"),
    models: Models = None,
    seeds: Seeds = 5,
    each: Each = False,
    json_file: Json = None,
    track: Track = None,
    tracking_uri: Uri = None,
) -> None:
    """Score the final models on the test networks, once all choices are made without these."""
    with bad_input():
        from autotune.lab import tracked
        from autotune.lab.test import test

        check_json(json_file)
        names = _names(models)
        store = tracked.open_store(track, tracking_uri)
        found = test(names, folder, seeds, progress=tell)
        _show(found, None, names, each, None, json_file)
        if store is not None:
            tracked.track_study(store, "test", found, None)


def curve_command(
    folder: PoolsFolder = Path("shipped"),
    model: Annotated[str, typer.Option("--model", metavar="NAME", help="Cost model to study.")] = "lightgbm",
    by: Annotated[By, typer.Option(help="Quantity of the training data to vary.")] = By.programs,
    seeds: Seeds = 5,
    json_file: Json = None,
) -> None:
    """Show the validation scores of a model against the size of its training data."""
    with bad_input():
        from rich.console import Console

        from autotune.lab.protocol import Pools
        from autotune.lab.protocol.curves import curve
        from autotune.lab.study_tables import figures_table
        from autotune.run_files import write_json

        check_json(json_file)
        points = curve(Pools.open(folder), model, by, seeds=seeds, progress=tell)
        rows = [((str(point.tasks), f"{point.programs:,}"), point.scores.values()) for point in points]
        Console(width=160).print(figures_table(("tasks", "programs"), 0, rows))
        if json_file is not None:
            write_json({"model": model, "by": str(by), "points": [point.to_json() for point in points]}, json_file)


def importance_command(
    folder: PoolsFolder = Path("shipped"),
    model: Annotated[str, typer.Option("--model", metavar="NAME", help="Cost model to study.")] = "lightgbm",
    most: Annotated[int, typer.Option("--most", min=1, help="Number of features to show.")] = 20,
    json_file: Json = None,
) -> None:
    """List the features that a model depends on, by its loss when one is shuffled among programs."""
    with bad_input():
        from autotune.lab.evaluate import fit_model, samples
        from autotune.lab.protocol import Pools
        from autotune.lab.protocol.importance import importance
        from autotune.run_files import write_json

        check_json(json_file)
        pools = Pools.open(folder)
        with working("computing features") as status:
            learned = fit_model(model, {}, 0, samples(pools.training, pools.parts("train"), status.update))
            losses = importance(learned, pools)
        for name, loss in list(losses.items())[:most]:
            typer.echo(f"{name:32} {loss:.4f}")
        if json_file is not None:
            write_json({"model": model, "loss_of_pairwise_accuracy": losses}, json_file)


def _names(models: str | None) -> list[str]:
    from costmodel.models import registry

    names = [name for name in (models or ",".join(_DEFAULT)).split(",") if name]
    for name in names:
        registry.get(name)
    return list(dict.fromkeys(names))


_DEFAULT = ("lightgbm", "lightgbm_pairwise", "lightgbm_lambdarank", "lightgbm_residual", "ridge", "roofline")


def _show(
    study: Study, pools: Pools | None, names: list[str], each: bool, plots: Path | None, json_file: Path | None
) -> None:
    from rich.console import Console

    from autotune.lab.study_tables import pictures, scores_table, tasks_table
    from autotune.run_files import write_json

    console = Console(width=190)
    console.print(scores_table(study))
    networks = ", ".join(study.held_out.tasks.weights)
    console.print(
        f"{len(study.held_out.parts)} tasks of {networks}; intervals of 95 % over tasks and {study.seeds} seeds; "
        f"* is behind {names[0]} (paired, p < .05); learned from {study.programs:,} programs",
        highlight=False,
    )
    if each:
        console.print(tasks_table(study, names[:2]))
    if plots is not None and pools is not None:
        for path in pictures(study, pools, names[0], plots):
            typer.echo(str(path))
    if json_file is not None:
        write_json(study.to_json(), json_file)
