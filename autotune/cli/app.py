"""The command line. What a command needs is imported when it runs."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from autotune import __version__
from autotune.cli import collect, costmodel, dataset, devices, workers
from autotune.cli.errors import INTERRUPTED, bad_input, fail

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)
app.command("collect")(collect.collect)
app.add_typer(dataset.app, name="dataset")
app.add_typer(costmodel.app, name="costmodel")
app.command("devices")(devices.devices)
app.command("worker")(workers.worker)
app.command("tracker")(workers.tracker)
Config = Annotated[Path, typer.Argument(metavar="CONFIG", help="Configuration file (YAML).")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Any configuration key, dotted; again for more."),
]


def main() -> None:
    """Entry point."""
    app()


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"autotune {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Tensor programs made fast by search."""


@app.command()
def run(
    config: Config,
    trials: Annotated[int | None, typer.Option(help="Candidates to measure; the tasks of a model share them.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of every random draw.")] = None,
    overrides: Overrides = None,
    pool: Annotated[str | None, typer.Option(help="local, ray, rpc://HOST:PORT?key=NAME, or replay:FILE.")] = None,
    token_file: Annotated[str | None, typer.Option(help="File with the token of RPC devices.")] = None,
    output: Annotated[str | None, typer.Option(help="The run folder.")] = None,
    track: Annotated[str | None, typer.Option(help="Where the run is tracked: mlflow or none.")] = None,
    tracking_uri: Annotated[
        str | None, typer.Option(help="sqlite:///FILE or a server; by default mlflow.db beside the run folder.")
    ] = None,
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="End without waiting until everything is in the tracking store.")
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the records that are there.")] = False,
    json_file: Annotated[
        Path | None,
        typer.Option("--json", metavar="FILE", help="Write the summary here too; - for standard output."),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show nothing but problems.")] = False,
) -> None:
    """Tunes a network or an operator."""
    again = f"To go on: autotune {' '.join([*sys.argv[1:], *([] if resume else ['--resume'])])}"
    with bad_input(again):
        from rich.console import Console

        from autotune.report.progress import LiveProgress
        from autotune.report.tables import PIPED
        from autotune.report.terminal import print_results
        from autotune.run import run as runner
        from autotune.run.folder import write_json

        given: dict[str, Any] = {"trials": trials, "seed": seed, "measure.pool": pool, "output": output}
        given |= {"measure.token_file": token_file, "tracking.backend": track, "tracking.uri": tracking_uri}
        given |= {"tracking.wait_s": 0.0 if no_wait else None}
        _check_json(json_file)
        loaded = _load(config, overrides, {key: value for key, value in given.items() if value is not None})
        console = Console(stderr=str(json_file) == "-")
        if not console.is_terminal:
            console.width = PIPED
        shown = [] if quiet else [LiveProgress(console)]

        def say(text: str) -> None:
            if not quiet:
                console.print(text, highlight=False, markup=False, soft_wrap=True)

        def show(outcome: runner.Outcome) -> None:
            for note in outcome.notes:
                typer.echo(note, err=True)
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
        if outcome.untracked:
            typer.echo(outcome.untracked, err=True)
    if outcome.interrupted:
        typer.echo(f"stopped; every finished trial is kept. {again}", err=True)
        raise typer.Exit(INTERRUPTED)
    if outcome.problems:
        fail("\n".join(outcome.problems))


@app.command()
def lower(
    config: Config,
    trace: Annotated[
        Path | None,
        typer.Option(help="A trace (JSON list) or a summary.json; by default a schedule of our own."),
    ] = None,
    stage: Annotated[
        list[str] | None,
        typer.Option(help="schedule, program, or the target's own, such as assembly; again for more; by default all."),
    ] = None,
    target: Annotated[str | None, typer.Option(help="For another target than the configuration's.")] = None,
    task: Annotated[str | None, typer.Option(help="Task of a model; the first by default.")] = None,
    overrides: Overrides = None,
) -> None:
    """Prints the program of a schedule at every stage, without running it."""
    with bad_input():
        from autotune.run.resolve import settings_of, space_of, tasks_of
        from autotune.tuning import stages, untimed

        loaded = _load(config, overrides, {} if target is None else {"target": target})
        settings = settings_of(loaded, str(config))
        chosen = stages.task_named(tasks_of(loaded, str(config)), task)
        if trace:
            scheduled = stages.from_file(chosen, trace)
        else:
            space = space_of(chosen, loaded, settings, str(config))
            scheduled = untimed.by_roofline(chosen, settings, space=space)
        for name, text in stages.stages(scheduled, settings.of(chosen).target, stage or ()):
            typer.echo(f"== {name}\n{text.rstrip()}\n")


@app.command()
def tasks(config: Config, overrides: Overrides = None) -> None:
    """Lists the tasks of a configuration, without tuning them."""
    with bad_input():
        from rich.console import Console

        from autotune.report.tables import Column, console_width, fitted
        from autotune.run.resolve import settings_of, tasks_of
        from search_space.space import algorithms_on
        from targets import registry

        loaded = _load(config, overrides)
        settings = settings_of(loaded, str(config))
        found = tasks_of(loaded, str(config))
        targets = [settings.of(task).target for task in found]
        algorithms = [
            ", ".join(algorithms_on(task.workload, registry.get(target).hardware))
            for task, target in zip(found, targets, strict=True)
        ]
        columns = [
            Column("task", [task.name for task in found], left=True),
            Column("times", [str(task.weight) for task in found]),
            Column("MFLOP", [f"{task.workload.flops * 1e-6:.2f}" for task in found]),
            Column("target", targets, rank=1, left=True),
            Column("algorithms", algorithms, rank=2, left=True),
        ]
        console = Console()
        console.width = width = console_width(console)
        console.print(fitted(columns, width))
        console.print(f"{len(found)} tasks, {sum(task.weight for task in found)} kernels", highlight=False)


@app.command("compile")
def compile_command(
    config: Config,
    records: Annotated[Path | None, typer.Option(help="Records file; that of the run folder by default.")] = None,
    output: Annotated[
        Path | None, typer.Option(help="Folder to write; `network` in the run folder by default.")
    ] = None,
    overrides: Overrides = None,
) -> None:
    """Rebuilds the executable of a model from records alone."""
    with bad_input():
        from autotune.network.deploy import rebuild

        loaded = _load(config, overrides)
        folder, notes = rebuild(loaded, str(config), records, output)
        for note in notes:
            typer.echo(note, err=True)
        typer.echo(f"{loaded.name} is in {folder}")


@app.command()
def bench(
    config: Config,
    network: Annotated[Path | None, typer.Option(help="Folder of the executable; that of the run by default.")] = None,
    against: Annotated[str, typer.Option(help="onnxruntime and openvino, as far as they are installed.")] = (
        "onnxruntime,openvino"
    ),
    turns: Annotated[int, typer.Option(min=1, help="Turns that each runtime takes.")] = 20,
    overrides: Overrides = None,
) -> None:
    """Times the executable of a model beside other runtimes, taking turns."""
    with bad_input():
        from autotune.network.deploy import compare
        from autotune.units import latency, share

        loaded = _load(config, overrides)
        timing = compare(loaded, str(config), network, against.split(","), turns, partial(typer.echo, err=True))
        ours = timing.seconds["autotune"]
        for name, seconds in timing.seconds.items():
            resident, spread = timing.memory[name] / 2**20, share(timing.spread(name))
            figures = f"{latency(seconds):>10}  spread {spread:>5}  {seconds / ours:5.2f}x"
            typer.echo(f"{name:12} {figures}  {resident:7.0f} MiB resident")
        if timing.unsteady:
            typer.echo(timing.unsteady, err=True)
        for name, why in timing.missing.items():
            typer.echo(f"{name} was not timed: {why}", err=True)


@app.command()
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
    with bad_input():
        from autotune.run import sweep as designs
        from autotune.units import latency

        given = {key: value for key, value in {"trials": trials, "output": output}.items() if value is not None}
        loaded = _load(config, overrides, given)
        variations = designs.parse_variations(vary or [], designs.configuration_of(loaded, str(config)))
        folder = loaded.folder if output else loaded.folder.with_name(f"{loaded.folder.name}_sweep")
        points = designs.sweep(loaded, str(config), variations, folder, typer.echo)
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


@app.command()
def track(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Run folder; more than one will do.")],
) -> None:
    """Uploads what a tracking server has missed of a run."""
    with bad_input():
        from autotune.tracking.browser import track as upload

        for folder in runs:
            typer.echo(f"everything of {folder} is in {upload(folder)}")


@app.command()
def ui(
    folder: Annotated[
        Path,
        typer.Argument(metavar="[FOLDER]", help="Folder that run folders lie in, or one of them.", show_default=True),
    ] = Path("runs"),
    uri: Annotated[str | None, typer.Option(help="Store to show; by default that of the folder.")] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="To listen on; 0: any that is free.")] = 5000,
) -> None:
    """Shows runs in MLflow's browser until Ctrl-C."""
    with bad_input():
        from autotune.tracking.browser import show

        show(folder, uri, port, typer.echo)


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders, or records files.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write; report.html in the first run by default.")
    ] = None,
) -> None:
    """Writes a page of HTML on one or more runs: tuning curves, tables, failures, and how they compare."""
    with bad_input():
        from autotune.report.html import write_report

        typer.echo(f"the report is {write_report(runs, output)}")


@app.command()
def schema(
    output: Annotated[Path | None, typer.Option(help="File to write; standard output by default.")] = None,
) -> None:
    """Prints the JSON schema of configuration files."""
    with bad_input():
        from autotune.config import json_schema

        text = json.dumps(json_schema(), indent=2) + "\n"
        if output is None:
            typer.echo(text, nl=False)
        else:
            output.write_text(text)


def _load(path: Path, overrides: list[str] | None, given: dict[str, Any] | None = None) -> Any:
    from autotune.config import load_config, parse_overrides

    return load_config(path, {**parse_overrides(overrides or []), **(given or {})})


def _check_json(path: Path | None) -> None:
    from autotune.config import ConfigError

    if path is not None and not path.absolute().parent.is_dir():
        raise ConfigError(f"`--json` must be a file in an existing folder, but got {path}")
