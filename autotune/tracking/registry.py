"""Tracking stores by name, imported when first asked for. A new one is a file and a line here."""

from __future__ import annotations

import importlib
import os

from autotune.tracking.store import TrackingStore
from search_space.extras import missing, require
from search_space.operators.checks import choice

BACKENDS: dict[str, str | None] = {
    "none": None,
    "mlflow": "autotune.tracking.mlflow_store:MLflowStore",
}
"""Name → class; None: nothing is tracked."""

DEFAULT = "mlflow"
VARIABLE = "AUTOTUNE_TRACKING"
"""Environment variable with the name of the backend where the configuration has none."""


def choose_backend(name: str | None) -> str:
    """Chooses the backend of a configuration that says `name`.

    Raises:
        MissingExtra: its packages are not installed.
        ValueError: no such backend; names the nearest one.
    """
    name = find_setting(name) or ("none" if explain_absence() else DEFAULT)
    if choice("backend", name, BACKENDS) == DEFAULT:
        require("tracking by MLflow", "mlflow")
    return name


def find_setting(name: str | None) -> str | None:
    """Returns the backend that the configuration (`name`) or else the environment names; None if neither does."""
    return name or os.environ.get(VARIABLE)


def explain_absence() -> str:
    """Says why runs without a configured backend are not tracked; "" if they are."""
    return missing("tracking by MLflow", "mlflow")


def get(name: str) -> type[TrackingStore]:
    """Imports the class of the store called `name`.

    Raises:
        ValueError: no such backend, or one that stores nothing.
    """
    place = BACKENDS[choose_backend(name)]
    if place is None:
        raise ValueError(f"`backend` must be one that stores runs, but got backend={name!r}")
    module, _, attribute = place.partition(":")
    kind: type[TrackingStore] = getattr(importlib.import_module(module), attribute)
    return kind
