"""Additions of the laboratory to the core, see `autotune.extensions`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import typer

    from autotune.config import RunConfig
    from autotune.graph.passes.pipeline import GraphPass
    from autotune.tuner.task import Task


def add_commands(app: typer.Typer) -> None:
    """Adds `collect`, `dataset` and `costmodel`."""
    from autotune.cli.options import RESEARCH, KeyCommand
    from autotune.lab.cli import collect, costmodel, dataset

    app.command(cls=KeyCommand, rich_help_panel=RESEARCH)(collect.collect)
    app.add_typer(dataset.app, name="dataset", rich_help_panel=RESEARCH)
    app.add_typer(costmodel.app, name="costmodel", rich_help_panel=RESEARCH)


def list_tasks(config: RunConfig) -> list[Task] | None:
    """Lists the tasks of a collection; None for a configuration without `collect`.

    Raises:
        ConfigError: an unknown operator or network, or sizes that do not go together.
    """
    if config.collect is None:
        return None
    from autotune.lab.collect.items import list_items
    from autotune.tuner.task import Task

    return [Task(item.name, item.workload, sum(item.networks.values()) or 1) for item in list_items(config)]


def substitutions() -> Mapping[str, Callable[[], GraphPass]]:
    """Lists `search`."""
    return {"search": _search}


def _search() -> GraphPass:
    from autotune.lab.substitutions.step import Substitute

    return Substitute()
