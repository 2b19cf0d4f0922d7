"""Cost models as folders of text, which `mlflow.pyfunc.load_model` loads: nothing in them is executed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.models import folder as folders
from costmodel.models.base import CostModel


class LoadedModel:
    """A cost model as MLflow calls it.

    Attributes:
        model: the cost model.
    """

    def __init__(self, model: CostModel) -> None:
        self.model = model

    def predict(self, features: NDArray[np.float32], params: dict[str, Any] | None = None) -> NDArray[np.float64]:
        """Scores candidates: (candidates, statements, features) → (candidates,), see `CostModel.predict`."""
        return self.model.predict(np.asarray(features, np.float32))


def write_folder(folder: Path, model_file: Path, kind: str) -> Path:
    """Makes the folder of a model.

    Args:
        folder: folder to make.
        model_file: file that the model's `save` wrote.
        kind: its name in `costmodel.models.registry`.
    """
    folder.mkdir(parents=True)
    (folder / folders.KIND).write_text(json.dumps({"cost_model": kind}) + "\n")
    shutil.copyfile(model_file, folder / folders.MODEL_FILE)
    return folder


def _load_pyfunc(data_path: str) -> LoadedModel:
    """Loads the model for MLflow; see `costmodel.models.folder.load` for what is refused."""
    return LoadedModel(folders.load(Path(data_path))[1])
