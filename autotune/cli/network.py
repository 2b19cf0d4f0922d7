"""`autotune compile` and `autotune bench`: executables of networks. Imports wait until a command runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autotune.cli.errors import bad_input
from autotune.cli.options import Config, Overrides, load, tell


def compile_command(
    ctx: typer.Context,
    config: Config,
    records: Annotated[Path | None, typer.Option(help="Records file; by default that of the run folder.")] = None,
    folder: Annotated[
        Path | None, typer.Option("--output", help="Folder to write; by default `network` in the run folder.")
    ] = None,
    lock: str | None = None,
    overrides: Overrides = None,
) -> None:
    """Compile a model with the schedules of records, or with schedules chosen without trials."""
    with bad_input(config=config):
        from autotune.compiler.compile_from_records import compile_model
        from autotune.run.workloads import make_job

        loaded = load(ctx)
        written, notes = compile_model(make_job(loaded), records, folder)
        for note in notes:
            tell(note)
        typer.echo(f"{loaded.name} is in {written}")


def bench(
    ctx: typer.Context,
    config: Config,
    network: Annotated[Path | None, typer.Option(help="Folder of the executable; by default that of the run.")] = None,
    against: Annotated[
        str,
        typer.Option(
            metavar="NAME,NAME", help="Runtimes to compare with, where installed; also: openvino-as-installed."
        ),
    ] = "onnxruntime,openvino",
    also: Annotated[
        str,
        typer.Option(
            metavar="FOLDER,FOLDER", help="Run folders of the same model in other precisions; none by default."
        ),
    ] = "",
    turns: Annotated[int, typer.Option(min=1, help="Number of turns of each runtime.")] = 20,
    overrides: Overrides = None,
) -> None:
    """Time the executable of a model in turns with other runtimes, and compare its outputs with ONNX Runtime's."""
    with bad_input(config=config):
        from autotune.compiler.finalize import compare
        from autotune.run.workloads import make_job
        from autotune.units import latency, share

        loaded = load(ctx)
        more = [Path(folder) for folder in also.split(",") if folder]
        timing = compare(make_job(loaded), network, against.split(","), turns, tell, more)
        ours = timing.seconds["autotune"]
        wide = max(len(timing.title(name)) for name in timing.seconds)
        for name, seconds in timing.seconds.items():
            resident, spread = timing.memory[name] / 2**20, share(timing.spread(name))
            figures = f"{latency(seconds):>10}  spread {spread:>5}  {seconds / ours:5.2f}x"
            noise = f"{timing.decibels[name]:5.1f} dB" if name in timing.decibels else " " * 8
            typer.echo(f"{timing.title(name):{wide}} {figures}  {noise}  {resident:7.0f} MiB resident")
        if timing.unsteady:
            tell(timing.unsteady)
        for name, why in timing.missing.items():
            tell(f"{name} was not timed: {why}")
