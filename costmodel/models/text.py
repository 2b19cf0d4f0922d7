"""Learned models as text: numbers and arrays by name in a JSON document, one per line, exact to the last bit."""

from __future__ import annotations

import json
import zlib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.features import NAMES
from costmodel.models.errors import CostModelError
from search_space.files import replace_file

Value = int | float | str | NDArray[Any] | list[Any]
FEATURES = f"{len(NAMES)}:{zlib.crc32(' '.join(NAMES).encode()):08x}"
"""Fingerprint of the names of a statement's features; a model learned from other features cannot be used."""


def write(path: Path, model: str, values: Mapping[str, Value]) -> None:
    """Writes the learned state of a model.

    Args:
        path: path of the file.
        model: name of the model's kind.
        values: numbers, texts and arrays by name; arrays of any shape, finite.

    Raises:
        CostModelError: a value is of another type, or not finite.
    """
    lines = []
    for name, value in {"model": model, "features": FEATURES, **values}.items():
        try:
            lines.append(f" {json.dumps(name)}: {_dump(value)}")
        except (TypeError, ValueError) as error:
            raise CostModelError(
                f"{model}: what is saved must be finite numbers, texts and arrays, but {name!r} is not: {error}"
            ) from None
    replace_file(path, ("{\n" + ",\n".join(lines) + "\n}\n").encode())


def read(path: Path, model: str, names: Collection[str] = ()) -> dict[str, Any]:
    """Reads the values that `write` wrote; arrays become arrays again.

    Args:
        path: path of the file.
        model: name of the model's kind.
        names: names that the file must have.

    Raises:
        CostModelError: the file is not a saved model, is of another kind of model, or of other features.
    """
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        header = values.pop("model"), values.pop("features")
        read = {name: _load(value) for name, value in values.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CostModelError(f"{path}: a saved model must be whole, but {error!r}") from None
    if header != (model, FEATURES):
        raise CostModelError(
            f"{path}: a saved model must be {model!r} on the features {FEATURES}, but got {header[0]!r} on {header[1]}"
        )
    if missing := [name for name in names if name not in read]:
        raise CostModelError(
            f"{path}: a saved model must have {', '.join(missing)}, but got {', '.join(read) or 'nothing'}"
        )
    return read


def _dump(value: Value) -> str:
    if isinstance(value, np.ndarray):
        if value.dtype == np.float32:  # the shortest exact digits, about half as many
            cells = [float(str(x)) for x in value.ravel()]
        else:
            cells = value.ravel().tolist()
        value = {"dtype": str(value.dtype), "shape": list(value.shape), "cells": cells}  # type: ignore[assignment]
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


def _load(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return np.array(value["cells"], np.dtype(value["dtype"])).reshape(value["shape"])
