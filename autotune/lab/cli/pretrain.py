"""`autotune costmodel pretrain`: the model trained on times of other layers, for `cost_model.pretrained`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autotune.cli.errors import bad_input
from autotune.cli.options import Seed, tell


def pretrain_command(
    datasets: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[DATASET]...", help="Folders of datasets; by default those of the shipped model."),
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="File to write, ending in .npz.")
    ] = Path("pretrained.npz"),
    seed: Seed = 0,
) -> None:
    """Learn the ratio of time to roofline from datasets, for tasks without any measurement."""
    with bad_input():
        from autotune.lab.learn_pretrained import learn, shipped_sources
        from costmodel.dataset import Dataset
        from costmodel.models.errors import CostModelError
        from costmodel.pretrained.file import write

        if output.suffix != ".npz":
            raise CostModelError(f"`--output` must end with .npz, but got {output.name!r}")
        sources = [Dataset.open(folder) for folder in datasets] if datasets else shipped_sources()
        model = learn(sources, seed, tell)
        write(model, {task.target for data in sources for task in data.tasks}, output)
        typer.echo(f"the model is in {output}, {output.stat().st_size / 1000:.0f} kB")
