"""`autotune costmodel`: models trained, evaluated, compared and tuned. Imports wait until a command runs."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autotune.cli.errors import bad_input
from autotune.cli.options import DatasetFolder, Json, Seed, Track, Uri, check_json, working
from autotune.lab.cli import pretrain, sequences, study

if TYPE_CHECKING:
    from rich.table import Table

    from autotune.lab.evaluate import Comparison, Evaluation
    from costmodel.dataset import Dataset, Split

app = typer.Typer(
    no_args_is_help=True, help="Train and evaluate cost models: train, eval, compare, tune, study, test, pretrain."
)
app.command("study")(study.study_command)
app.command("test")(study.test_command)
app.command("curve")(study.curve_command)
app.command("importance")(study.importance_command)
app.command("pretrain")(pretrain.pretrain_command)
app.command("sequences")(sequences.sequences_command)

SplitFile = Annotated[Path | None, typer.Option("--split", metavar="FILE", help="File of `autotune dataset split`.")]
HoldOut = Annotated[
    list[str] | None,
    typer.Option("--hold-out", metavar="NETWORK", help="Network to evaluate on, in place of --split; repeat for more."),
]
Target = Annotated[
    str | None, typer.Option("--target", metavar="NAME", help="Target whose programs are used; by default all.")
]
Options = Annotated[
    list[str] | None, typer.Option("--set", metavar="OPTION=VALUE", help="Option of the model; repeat for more.")
]
OptionsFile = Annotated[
    Path | None, typer.Option("--options", metavar="FILE", help="File of `autotune costmodel tune`.")
]
ModelName = Annotated[
    str, typer.Option("--model", help="Cost model: lightgbm, ridge, ..., module:Class or FILE.py:Class.")
]


@app.command()
def train(
    dataset: DatasetFolder,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder to write the model to.")],
    model: ModelName = "lightgbm",
    split: SplitFile = None,
    hold_out: HoldOut = None,
    target: Target = None,
    settings: Options = None,
    options: OptionsFile = None,
    seed: Seed = 0,
    track: Track = None,
    tracking_uri: Uri = None,
) -> None:
    """Train a model on a dataset, and evaluate it on the test part of a split."""
    with bad_input():
        from autotune.lab import tracked
        from autotune.lab.evaluate import Comparison, compare, evaluate, fit_model, samples
        from costmodel.models import folder, registry

        model_options = _options(settings, options, model)
        registry.make(model, model_options, seed)  # refuses what cannot be before anything takes time
        store, data = tracked.open_store(track, tracking_uri), _open(dataset, target)
        chosen = _split(data, split, hold_out)
        if chosen is None:
            everything = _everything(data)
            with working("computing features") as status:
                learned = fit_model(model, model_options, seed, samples(data, everything, status.update))
            row = Comparison(model, model_options, learned, math.nan, evaluate(learned, data, everything))
        else:
            with working("computing features") as status:
                (row,) = compare(data, chosen, [model], seed, {model: model_options}, status.update)
        about = _about(dataset, data, chosen, seed)
        folder.save(output, row.model, model, {**about, **_finite(row.to_json())})
        _print([row], "evaluated on what it has learned from" if chosen is None else _title(chosen, data))
        typer.echo(f"the model is in {output}")
        if store is not None:
            typer.echo(f"registered as {tracked.track_model(store, f'train {model}', about, row)}")


@app.command("eval")
def evaluate_command(
    folder: Annotated[Path, typer.Argument(metavar="MODEL", help="Folder of a model.")],
    dataset: DatasetFolder,
    split: SplitFile = None,
    hold_out: HoldOut = None,
    target: Target = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model", metavar="NAME", help="Name of a model of your own, whose code is run; none by default."
        ),
    ] = None,
    json_file: Json = None,
) -> None:
    """Evaluate a model on the test part of a split, or on everything."""
    with bad_input():
        from autotune.lab.evaluate import Comparison, evaluate
        from autotune.run_files import write_json
        from costmodel.models import folder as folders

        check_json(json_file)
        name, loaded = folders.load(folder, model)
        data = _open(dataset, target)
        chosen = _split(data, split, hold_out)
        parts = _everything(data) if chosen is None else chosen.test(data)
        with working(f"evaluating {name} on {len(parts)} tasks"):
            scores = evaluate(loaded, data, parts, _networks(chosen))
        _print([Comparison(name, {}, loaded, math.nan, scores)], _title(chosen, data))
        _print_networks(scores)
        if json_file is not None:
            write_json(_finite({"name": name, **scores.to_json()}), json_file)


@app.command("compare")
def compare_command(
    dataset: DatasetFolder,
    split: SplitFile = None,
    hold_out: HoldOut = None,
    target: Target = None,
    models: Annotated[
        str | None,
        typer.Option("--models", metavar="NAME,NAME", help="Models to compare; by default all of the package."),
    ] = None,
    own: Annotated[
        list[str] | None,
        typer.Option("--model", metavar="NAME", help="Another model: module:Class or FILE.py:Class; repeat for more."),
    ] = None,
    seed: Seed = 0,
    json_file: Json = None,
    track: Track = None,
    tracking_uri: Uri = None,
) -> None:
    """Train models on one split, and compare them with random choice and the roofline."""
    with bad_input():
        from autotune.lab import tracked
        from autotune.lab.evaluate import compare
        from autotune.run_files import write_json
        from costmodel.dataset import split_by_task
        from costmodel.models import registry

        check_json(json_file)
        named = [name for name in (models or ",".join(registry.MODELS)).split(",") if name]
        names = list(dict.fromkeys([*named, *(own or ()), "roofline", "random"]))
        for name in names:
            registry.get(name)
        store, data = tracked.open_store(track, tracking_uri), _open(dataset, target)
        chosen = _split(data, split, hold_out) or split_by_task(data, seed=seed)
        rows = []
        with working("computing features") as status:
            for row in compare(data, chosen, names, seed, progress=status.update):
                rows.append(row)
                status.console.print(f"{row.name}: learned in {row.fit_seconds:.1f} s", highlight=False, soft_wrap=True)
        _print(rows, _title(chosen, data))
        about = _about(dataset, data, chosen, seed)
        if json_file is not None:
            write_json({**about, "models": [_finite(row.to_json()) for row in rows]}, json_file)
        if store is not None:
            tracked.track_comparison(store, "compare", about, rows)


@app.command()
def tune(
    dataset: DatasetFolder,
    model: ModelName = "lightgbm",
    split: SplitFile = None,
    hold_out: HoldOut = None,
    target: Target = None,
    trials: Annotated[int, typer.Option(min=1, help="Number of option sets to try.")] = 30,
    metric: Annotated[str, typer.Option(help="Metric to maximise: top1, top5, pairwise, recall or peak.")] = "top1",
    folds: Annotated[int, typer.Option(min=2, help="Number of parts that the tasks are split into.")] = 3,
    settings: Options = None,
    seed: Seed = 0,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="JSON file to write the best options to.")
    ] = None,
) -> None:
    """Find the options with which a model does best on tasks outside its training data."""
    with bad_input():
        from autotune.lab.hyperparameters import Trial
        from autotune.lab.hyperparameters import tune as search
        from autotune.run_files import write_json

        check_json(output, "--output")
        data = _open(dataset, target)
        chosen = _split(data, split, hold_out)
        parts = _everything(data) if chosen is None else chosen.train(data)

        def show(trial: Trial) -> None:
            end = f" after {trial.folds} of {folds} folds, pruned" if trial.pruned else ""
            shown = " ".join(f"{key}={_short(value)}" for key, value in trial.options.items())
            typer.echo(f"{metric} {trial.value:.4f}{end}  {shown or 'by default'}")

        found = search(data, parts, model, trials, metric, folds, seed, _options(settings, None, model), show)
        best = found[0]
        typer.echo(
            f"best: {metric} {best.value:.4f} with {json.dumps(dict(best.options)) if best.options else 'its own'}"
        )
        if output is not None:
            document = {"model": model, "options": dict(best.options), "metric": metric, "value": best.value}
            write_json({**document, "folds": folds, "trials": trials, "seed": seed}, output)


def _open(folder: Path, target: str | None) -> Dataset:
    from autotune.config import ConfigError
    from costmodel.dataset import Dataset

    data = Dataset.open(folder)
    targets = sorted({task.target for task in data.tasks})
    if target is None:
        return data
    if target not in targets:
        raise ConfigError(f"`--target` must be of {', '.join(targets)}, but got {target!r}")
    return data.select(task for task in data.tasks if task.target == target)


def _split(data: Dataset, file: Path | None, hold_out: Sequence[str] | None) -> Split | None:
    from autotune.config import ConfigError
    from costmodel.dataset import Split, split_by_network

    if file is not None and hold_out:
        raise ConfigError(f"`--split` and `--hold-out` must not be given together, but got {file} and {hold_out[0]}")
    if file is not None:
        return Split.read(file)
    return split_by_network(data, hold_out) if hold_out else None


def _everything(data: Dataset) -> list[Any]:
    import numpy as np

    from costmodel.dataset import TaskPrograms

    return [TaskPrograms(task, np.arange(data.count(task))) for task in data.tasks]


def _networks(split: Split | None) -> tuple[str, ...]:
    return split.held_out if split is not None and split.kind == "network" else ()


def _title(split: Split | None, data: Dataset) -> str:
    if split is None:
        return "evaluated on all tasks"
    names = f": {', '.join(split.held_out)}" if split.held_out else ""
    return f"evaluated on {len(split.test(data))} tasks, held back by {split.kind}{names}"


def _about(folder: Path, data: Dataset, split: Split | None, seed: int) -> dict[str, Any]:
    from autotune.lab.evaluate.evaluation import PEAK_AT, RECALL_AT

    by = {} if split is None else {"kind": split.kind, "held_out": list(split.held_out), "share": split.share}
    if split is not None:
        by |= {"seed": split.seed, "train_tasks": len(split.train(data)), "test_tasks": len(split.test(data))}
    about = {"dataset": str(folder), "tasks": len(data.tasks), "programs": len(data), "split": by, "seed": seed}
    return {**about, "recall_at": RECALL_AT, "peak_at": PEAK_AT}


def _options(settings: Sequence[str] | None, file: Path | None, model: str) -> dict[str, Any]:
    """Merges a model's options from a file of `tune` and from the command line, which takes precedence."""
    from autotune.config import ConfigError, parse_overrides
    from search_space import strict_json

    from_file: dict[str, Any] = {}
    if file is not None:
        try:
            document = strict_json.loads(file.read_text(), finite=False)
            of, from_file = document["model"], dict(document["options"])
        except (ValueError, KeyError, TypeError):
            raise ConfigError(f"{file}: `--options` must be a file that `autotune costmodel tune` wrote") from None
        if of != model:
            raise ConfigError(f"{file}: `--options` must be of the model {model!r}, but got options of {of!r}")
    return {**from_file, **parse_overrides(list(settings or ()))}


def _print(rows: Sequence[Comparison], title: str) -> None:
    from rich.console import Console

    console = Console(width=120)
    console.print(make_table(rows))
    console.print(title, highlight=False)


def make_table(rows: Sequence[Comparison]) -> Table:
    """Builds the table of models and their metrics."""
    from autotune.lab.evaluate.evaluation import PEAK_AT, RECALL_AT
    from autotune.lab.study_tables import new_table

    heads = ("top-1", "top-5", "pooled", "pooled-5", "pairwise", f"recall@{RECALL_AT}", f"peak@{PEAK_AT}", "RMSE")
    table = new_table(["model"], [*heads, "statements/s", "fit s"])
    for row in rows:
        of = row.evaluation
        figures = (of.top[1], of.top[5], of.pooled_top[1], of.pooled_top[5], of.pairwise, of.recall, of.peak, of.rmse)
        speed = "" if row.name == "roofline" else f"{of.statements_per_second:,.0f}"
        fit = "" if math.isnan(row.fit_seconds) else f"{row.fit_seconds:.1f}"
        table.add_row(row.name, *(f"{figure:.3f}" for figure in figures), speed, fit)
    return table


def _print_networks(evaluation: Evaluation) -> None:
    for name, scores in evaluation.networks.items():
        typer.echo(f"{name:24} " + "  ".join(f"top-{k} {score:.3f}" for k, score in scores.items()))


def _finite(row: dict[str, Any]) -> dict[str, Any]:
    """Converts a row to plain data, NaN to null."""
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
