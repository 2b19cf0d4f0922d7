"""The former name of `autotune.graph.onnx.model`, for one release."""

from __future__ import annotations

import warnings
from typing import Any

from autotune.graph.onnx import model


def __getattr__(name: str) -> Any:
    """Finds a name in the module's new place, with a DeprecationWarning."""
    found = getattr(model, name)
    warnings.warn(
        f"autotune.graph.onnx_model is now autotune.graph.onnx.model, but got {name} from the former",
        DeprecationWarning,
        stacklevel=2,
    )
    return found
