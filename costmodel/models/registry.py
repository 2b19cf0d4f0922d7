"""Cost models by name. A new one is a file and a line here."""

from __future__ import annotations

import importlib

from costmodel.models.base import CostModel

MODELS: dict[str, str] = {
    "lightgbm": "costmodel.models.lightgbm_model:LightGBMModel",
    "roofline": "costmodel.models.roofline:RooflineModel",
    "random": "costmodel.models.random_model:RandomModel",
}


def get(name: str) -> type[CostModel]:
    """The model class of that name.

    Raises:
        ValueError: no model has it.
    """
    if name not in MODELS:
        raise ValueError(f"`cost_model` must be one of {', '.join(MODELS)}, but got cost_model={name!r}")
    module, _, attribute = MODELS[name].partition(":")
    kind: type[CostModel] = getattr(importlib.import_module(module), attribute)
    return kind
