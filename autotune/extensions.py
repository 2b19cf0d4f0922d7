"""Additions from packages beside the core, which works without them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    import typer

    from autotune.config import RunConfig
    from autotune.graph.passes.pipeline import GraphPass
    from autotune.tuner.task import Task

EXTENSIONS = ("autotune.lab.extension",)
"""Modules with the functions of `Extension`, each used if its package is installed."""


class Extension(Protocol):
    """Functions of a module that adds to the core."""

    def add_commands(self, app: typer.Typer) -> None:
        """Adds commands; a command imports what it needs when it runs."""

    def list_tasks(self, config: RunConfig) -> list[Task] | None:
        """Lists the tasks of a configuration that only the extension runs; None for any other.

        Raises:
            ConfigError: the configuration is the extension's, but illegal.
        """

    def substitutions(self) -> Mapping[str, Callable[[], GraphPass]]:
        """Lists additional values of `network.substitutions`, each with the function that makes its pass."""


@cache
def extensions() -> tuple[Extension, ...]:
    """Imports the extensions that are installed."""
    return tuple(cast(Extension, import_module(name)) for name in EXTENSIONS if _is_installed(name))


def _is_installed(name: str) -> bool:
    return find_spec(name.rpartition(".")[0]) is not None and find_spec(name) is not None
