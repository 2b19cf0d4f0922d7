"""List of the survey's models, read from YAML: library -> family -> models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import yaml

MODELS_FILE = Path(__file__).with_name("models.yaml")
SEALED_FILE = Path(__file__).with_name("sealed.yaml")
"""List drawn once, on which nothing is tuned."""
PEERS = ("onnxruntime", "openvino")
"""Peers by default; the first that runs a model is the reference of its outputs."""
MODULES = ("torch", "torch-inductor")
"""Peers that run the module which was exported: PyTorch in float32, eager and compiled."""
LIBRARIES = ("torchvision", "timm", "transformers", "onnx")


@dataclass(frozen=True)
class Model:
    """One model.

    Attributes:
        name: name within the list.
        library: library that makes it; `onnx` for a file that is there already.
        family: family of similar models.
        options: options of the library's constructor, JSON-able; `path` of a file.
    """

    name: str
    library: str
    family: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Converts it to plain data."""
        return {"name": self.name, "library": self.library, "family": self.family, "options": dict(self.options)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Model:
        """Makes a model from its plain data."""
        return cls(data["name"], data["library"], data["family"], data["options"])


def load_models(path: Path = MODELS_FILE) -> list[Model]:
    """Reads the models of a list, in its order.

    Raises:
        ValueError: a list of another form, an unknown library, a name that occurs twice.
    """
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise ValueError(f"`models` must be a YAML file, but got {path}: {error}") from None
    if not isinstance(data, dict) or not all(isinstance(families, dict) for families in data.values()):
        raise ValueError(f"`models` must be library -> family -> models, but got {path}")
    by_name: dict[str, Model] = {}
    for library, families in data.items():
        if library not in LIBRARIES:
            raise ValueError(f"`library` must be one of {', '.join(LIBRARIES)}, but got {library!r} in {path}")
        for family, entries in families.items():
            for model in (_model(entry, library, family) for entry in _require_list(entries, family)):
                if model.name in by_name:
                    raise ValueError(f"names of models must differ, but {path} has {model.name} twice")
                by_name[model.name] = model
    return list(by_name.values())


def select(models: Sequence[Model], only: str | None) -> list[Model]:
    """Selects models by a comma-separated list of names and families, in which `*` is a wildcard; all for None.

    Raises:
        ValueError: a pattern that no model has.
    """
    if only is None:
        return list(models)
    patterns = only.split(",")
    for pattern in patterns:
        if not any(_matches(model, pattern) for model in models):
            raise ValueError(f"`only` must name models or families of the list, but got only={pattern!r}")
    return [model for model in models if any(_matches(model, pattern) for pattern in patterns)]


def _matches(model: Model, pattern: str) -> bool:
    return fnmatch(model.name, pattern) or fnmatch(model.family, pattern)


def _require_list(entries: Any, family: str) -> list[Any]:
    if not isinstance(entries, list):
        raise ValueError(f"a family must be a list of models, but got {family}: {entries!r}")
    return entries


def _model(entry: Any, library: str, family: str) -> Model:
    if isinstance(entry, str):
        return Model(entry, library, family)
    if isinstance(entry, dict) and len(entry) == 1:
        ((name, options),) = entry.items()
        if isinstance(options, dict):
            return Model(str(name), library, family, options)
    raise ValueError(f"a model must be a name, or a name with options, but got {entry!r} in {family}")
