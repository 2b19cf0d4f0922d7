"""Cost models of a run, by name and options."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from autotune.naming import nearest
from costmodel.models import registry
from costmodel.models.base import CostModel


def make_model(name: str, options: Mapping[str, Any], seed: int) -> CostModel:
    """The model `name`, made with its options; `seed` goes to a model that takes one.

    Raises:
        ValueError: no such model, or an option that it does not have.
    """
    kind = registry.get(name)
    parameters = inspect.signature(kind).parameters
    for option in options:
        if option not in parameters:
            raise ValueError(
                f"`{name}` must have options among {', '.join(parameters) or 'none'}, "
                f"but got {option!r}{nearest(option, parameters)}"
            )
    seeded = {"seed": seed} if "seed" in parameters else {}
    model: CostModel = kind(**{**seeded, **options})
    return model
