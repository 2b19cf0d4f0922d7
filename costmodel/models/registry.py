"""Cost models by name, imported when first asked for. A new one is a file and a line here."""

from __future__ import annotations

import importlib
from difflib import get_close_matches

from costmodel.models.base import CostModel

MODELS: dict[str, str] = {
    "lightgbm": "costmodel.models.lightgbm_model:LightGBMModel",
    "roofline": "costmodel.models.roofline:RooflineModel",
    "random": "costmodel.models.random_model:RandomModel",
}


def get(name: str) -> type[CostModel]:
    """The model class of that name.

    Raises:
        ValueError: no model has it; names the nearest one.
    """
    if name not in MODELS:
        near = get_close_matches(name, MODELS, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"`cost_model` must be one of {', '.join(MODELS)}, but got cost_model={name!r}{hint}")
    module, _, attribute = MODELS[name].partition(":")
    kind: type[CostModel] = getattr(importlib.import_module(module), attribute)
    return kind
