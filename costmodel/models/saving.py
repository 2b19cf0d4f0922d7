"""Check that a model's learned state can be saved and loaded, on a few rows, before it costs time."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.features import NAMES
from costmodel.models.base import CostModel, Scores, UncertainModel
from costmodel.models.errors import CostModelError
from search_space.scratch import ScratchFolder

ROWS = 10  # made-up programs that a model is tried on
_CHECKED_MODELS: set[tuple[type[CostModel], str]] = set()  # classes with their options that passed, in this process


def check_saving(name: str, kind: type[CostModel], options: Mapping[str, Any]) -> None:
    """Fits a user's own model on `ROWS` made-up programs, saves it, loads it as its readers do, and compares.

    Args:
        name: name of the model, for messages.
        kind: class of the model.
        options: options that it is made with, with the seed.

    Raises:
        CostModelError: it cannot be saved or loaded, its file is not text, or the loaded model predicts otherwise.
    """
    key = (kind, repr(sorted(options.items())))
    if key in _CHECKED_MODELS:
        return
    model, (features, throughput) = kind(**options), _programs()
    model.fit([*features], throughput)
    with ScratchFolder("model") as folder:
        loaded = _round_trip(name, model, kind, Path(folder) / "model.txt")
    expected_scores = _predictions(name, model, features, "fitted")
    for actual, expected in zip(_predictions(name, loaded, features, "loaded"), expected_scores, strict=True):
        if not np.array_equal(actual, expected):
            row = int(np.flatnonzero(actual != expected)[0])
            raise CostModelError(
                f"{name}: a model must predict after loading what it did before saving, to the last bit, "
                f"but got {actual[row]!r} for {expected[row]!r}; `state_attributes` names those that are kept"
            )
    _CHECKED_MODELS.add(key)


def _round_trip(name: str, model: CostModel, kind: type[CostModel], path: Path) -> CostModel:
    """Saves and loads the model; readers of a model's folder have its class and its file, but no options."""
    try:
        model.save(path)
    except Exception as error:  # a user's code may raise anything
        raise CostModelError(f"{name}: what a model learns must be saved, but {_reason(error)}") from error
    _check_text(name, path)
    try:
        loaded = kind()
    except TypeError as error:
        raise CostModelError(f"{name}: a model must be made without options where it is loaded, but {error}") from error
    try:
        loaded.load(path)
    except Exception as error:
        raise CostModelError(f"{name}: what a model saved must be loaded again, but {_reason(error)}") from error
    return loaded


def _check_text(name: str, path: Path) -> None:
    """Refuses a file that is not text: binary files of learned models are pickles, which run code when read."""
    if not path.is_file():
        raise CostModelError(f"{name}: `save` must write the file that it is given, but there is none")
    content = path.read_bytes()
    try:
        text = content.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise CostModelError(f"{name}: `save` must write text, never code or pickles, but got {content[:16]!r}")


def _predictions(name: str, model: CostModel, features: NDArray[np.float32], state: str) -> tuple[Scores, ...]:
    """Predicts scores by a model that was `fitted` or `loaded`.

    Raises:
        CostModelError: it cannot predict; for a loaded one, names the attribute that `state_attributes` lacks.
    """
    try:
        if isinstance(model, UncertainModel):
            return model.predict_with_deviation(features)
        return (model.predict(features),)
    except CostModelError:
        raise
    except AttributeError as error:
        if state == "fitted" or error.obj is not model:
            raise
        raise CostModelError(
            f"{name}: `state_attributes` must name every attribute that `predict` reads, but {error.name!r} is not "
            f"among {list(model.state_attributes)}"
        ) from error
    except ValueError as error:  # a model without learned state reports that it was not fitted
        raise CostModelError(f"{name}: a model must predict once it was {state}, but {error}") from error


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, CostModelError) else f"got {type(error).__name__}: {error}"


def _programs() -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """Makes features (`ROWS`, 2, features) and throughput (`ROWS`,), of which one failed."""
    rng = np.random.default_rng(0)
    features = rng.uniform(0, 8, (ROWS, 2, len(NAMES))).astype(np.float32)
    return features, np.linspace(0, 1, ROWS)
