"""`autotune lower`, `tasks`, `models`, `devices` and `schema`: what there is to be tuned, and on what; no trials."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from autotune.cli.errors import bad_input, fail
from autotune.cli.options import Config, Overrides, load


def lower(
    ctx: typer.Context,
    config: Config,
    trace: Annotated[
        Path | None,
        typer.Option(help="Trace (JSON list) or summary.json; by default a schedule chosen without trials."),
    ] = None,
    stage: Annotated[
        list[str] | None,
        typer.Option(help="Stage to print: schedule, program, or one of the target, such as assembly; by default all."),
    ] = None,
    target: str | None = None,
    task: Annotated[str | None, typer.Option(metavar="NAME", help="Task of a model; by default the first.")] = None,
    overrides: Overrides = None,
) -> None:
    """Print the program of a schedule at every stage, without running it."""
    with bad_input(config=config):
        from autotune.run.workloads import make_settings, tasks_of_any
        from autotune.tuner import stages, untimed
        from autotune.tuner.preparation import template_space

        loaded = load(ctx)
        settings = make_settings(loaded)
        chosen = stages.task_named(tasks_of_any(loaded), task)
        if trace:
            schedule = stages.from_file(chosen, trace)
        else:
            space = template_space(chosen, settings)
            schedule = untimed.select_without_trials(chosen, settings, space=space).schedule
        for name, text in stages.stages(chosen.workload, schedule, settings.of(chosen).target, stage or ()):
            typer.echo(f"== {name}\n{text.rstrip()}\n")


def tasks(
    ctx: typer.Context,
    config: Config,
    passes: Annotated[
        bool, typer.Option("--passes", help="Print the changes and the time of each graph pass.")
    ] = False,
    overrides: Overrides = None,
) -> None:
    """List the tasks of a configuration, without tuning them."""
    with bad_input(config=config):
        from autotune.compiler.tasks import element_types
        from autotune.report.tables import Column, print_table
        from autotune.run.workloads import make_job, make_settings, tasks_of_any
        from search_space.operators.algorithms import within
        from search_space.space import algorithms_on

        loaded = load(ctx)
        settings = make_settings(loaded)
        show = (lambda run: typer.echo(str(run))) if passes else None
        network = None if loaded.model is None else make_job(loaded).load(listener=show)
        tasks = tasks_of_any(loaded) if network is None else list(network.tasks)
        targets = [settings.of(task).target for task in tasks]
        algorithms = [
            ", ".join(within(algorithms_on(task.workload, target.hardware), explicit=loaded.network.algorithms))
            for task, target in zip(tasks, targets, strict=True)
        ]
        types = [element_types(task.workload) for task in tasks]
        columns = [
            Column("task", [task.name for task in tasks], left=True),
            *([Column("types", types, rank=1, left=True)] if set(types) != {"float32"} else []),
            Column("times", [str(task.weight) for task in tasks]),
            Column("MFLOP", [f"{task.workload.flops * 1e-6:.2f}" for task in tasks]),
            Column("target", [target.name for target in targets], rank=1, left=True),
            Column("algorithms", algorithms, rank=2, left=True),
        ]
        console = print_table(columns)
        console.print(f"{len(tasks)} tasks, {sum(task.weight for task in tasks)} kernels", highlight=False)
        if network is not None and network.mixture is not None:
            console.print(str(network.mixture), highlight=False, soft_wrap=True)
        if network is not None and network.imported_layers is not None:
            console.print(str(network.imported_layers), highlight=False, soft_wrap=True)


def models() -> None:
    """List the networks that have a name for commands and for `model`."""
    with bad_input():
        from autotune.graph.frontends.onnx.model import ZOO
        from autotune.graph.zoo import BUILDERS
        from autotune.report.tables import Column, print_table

        origins = dict.fromkeys(ZOO, "ONNX's model zoo, weights of one value")
        origins |= dict.fromkeys(BUILDERS, "built here, random weights")
        names = sorted(origins)
        print_table([Column("model", names, left=True), Column("from", [origins[name] for name in names], left=True)])


def devices(
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON document.")] = False,
    probe_again: Annotated[bool, typer.Option(help="Measure the processor's figures again.")] = False,
    figures: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File of figures to use from now on, such as `processor.json` of a run."),
    ] = None,
) -> None:
    """Show processor, C compiler, GPUs and simulators as targets, and the probed figures of the processor."""
    with bad_input():
        if probe_again and figures is not None:
            fail(f"`--probe-again` must stand without `--figures`, but got --figures {figures}")
        from autotune.run import devices as machine

        try:
            found = machine.facts(probe_again, figures)
        except machine.FiguresError as error:
            fail(str(error))
        typer.echo(machine.as_json(found) if as_json else machine.text(found))


def schema(
    output: Annotated[Path | None, typer.Option(help="File to write; by default standard output.")] = None,
) -> None:
    """Print the JSON schema of configuration files."""
    with bad_input():
        from autotune.config import json_schema

        text = json.dumps(json_schema(), indent=2) + "\n"
        if output is None:
            typer.echo(text, nl=False)
        else:
            output.write_text(text)
