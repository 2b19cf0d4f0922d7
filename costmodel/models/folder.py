"""Models as folders: what they are, what they have learned, and what of."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from costmodel.models import registry
from costmodel.models.base import CostModel
from costmodel.models.errors import ModelError
from search_space.files import replace_file

KIND, LEARNED, TRAINING = "kind.json", "model.txt", "training.json"


def save(folder: Path, model: CostModel, name: str, training: Mapping[str, Any]) -> None:
    """Writes a model's folder, in place of what it holds of another model.

    Args:
        folder: made where it does not exist.
        model: that has learned.
        name: of the model in `costmodel.models.registry`.
        training: what is to be known of how it learned, as plain data.
    """
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / KIND, (json.dumps({"cost_model": name}) + "\n").encode())
    model.save(folder / LEARNED)
    replace_file(folder / TRAINING, (json.dumps(training, indent=2) + "\n").encode())


def load(folder: Path, name: str | None = None) -> tuple[str, CostModel]:
    """Name and model of a folder; no code is run that was not asked for.

    Args:
        folder: that `save` wrote.
        name: of the model, where it is one of the user's own.

    Raises:
        ModelError: it is no such folder, or of another model.
        OSError: a file cannot be read.
    """
    text = (folder / KIND).read_text()
    try:
        found = str(json.loads(text)["cost_model"])
    except (ValueError, KeyError, TypeError):
        raise ModelError(f"{folder / KIND}: a model's folder must name its model, but got {text[:60]!r}") from None
    if name is not None and name != found:
        raise ModelError(f"`name` must be that of the model in {folder}, {found!r}, but got name={name!r}")
    model = (registry.get(name) if name else registry.known(found))()
    model.load(folder / LEARNED)
    return found, model
