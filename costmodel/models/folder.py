"""Models as folders: their name, their learned state, and a description of their training."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from costmodel.models import registry
from costmodel.models.base import CostModel
from costmodel.models.errors import CostModelError
from search_space.files import replace_file

KIND, MODEL_FILE, TRAINING = "kind.json", "model.txt", "training.json"


def save(folder: Path, model: CostModel, name: str, training: Mapping[str, Any]) -> None:
    """Writes a model's folder, in place of another model in it.

    Args:
        folder: path of the folder; created unless it exists.
        model: model that has learned.
        name: name of the model in `costmodel.models.registry`.
        training: description of its training, as plain data.
    """
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / KIND, (json.dumps({"cost_model": name}) + "\n").encode())
    model.save(folder / MODEL_FILE)
    replace_file(folder / TRAINING, (json.dumps(training, indent=2) + "\n").encode())


def load(folder: Path, name: str | None = None) -> tuple[str, CostModel]:
    """Loads name and model of a folder, without running code that the caller did not name.

    Args:
        folder: folder that `save` wrote.
        name: name of the model, if it is one of the user's own.

    Raises:
        CostModelError: it is not such a folder, or has another model.
        OSError: a file cannot be read.
    """
    text = (folder / KIND).read_text()
    try:
        stored = str(json.loads(text)["cost_model"])
    except (ValueError, KeyError, TypeError):
        raise CostModelError(f"{folder / KIND}: a model's folder must name its model, but got {text[:60]!r}") from None
    if name is not None and name != stored:
        raise CostModelError(f"`name` must be that of the model in {folder}, {stored!r}, but got name={name!r}")
    model = (registry.get(name) if name else registry.get_trusted(stored))()
    model.load(folder / MODEL_FILE)
    return stored, model
