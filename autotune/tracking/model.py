"""Cost models as folders of text, which `mlflow.pyfunc.load_model` loads again: nothing in them is executed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.models import registry
from costmodel.models.base import CostModel

_KIND, _LEARNED = "kind.json", "model.txt"


class LoadedModel:
    """A cost model as MLflow calls it.

    Attributes:
        model: the cost model.
    """

    def __init__(self, model: CostModel) -> None:
        self.model = model

    def predict(self, features: NDArray[np.float32], params: dict[str, Any] | None = None) -> NDArray[np.float64]:
        """Scores: (candidates, statements, features) → (candidates,), see `CostModel.predict`."""
        return self.model.predict(np.asarray(features, np.float32))


def write_folder(folder: Path, learned: Path, kind: str) -> Path:
    """Makes the folder of a model.

    Args:
        folder: to make.
        learned: what the model's `save` wrote.
        kind: its name in `costmodel.models.registry`.
    """
    folder.mkdir(parents=True)
    (folder / _KIND).write_text(json.dumps({"cost_model": kind}) + "\n")
    shutil.copyfile(learned, folder / _LEARNED)
    return folder


def load_folder(folder: Path) -> CostModel:
    """The model that `write_folder` wrote.

    Raises:
        ValueError: a kind of model that there is not, or one of somebody's own that this process has not asked for
            with `registry.get`: that would run its code.
    """
    model = registry.known(json.loads((folder / _KIND).read_text())["cost_model"])()
    model.load(folder / _LEARNED)
    return model


def _load_pyfunc(data_path: str) -> LoadedModel:
    """What MLflow calls to load the model."""
    return LoadedModel(load_folder(Path(data_path)))
