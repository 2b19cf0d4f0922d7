"""The former name of `autotune.lab.substitutions`, for one release."""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    """Finds a name in the package's new place, with a DeprecationWarning; the laboratory is imported only then."""
    found = getattr(import_module("autotune.lab.substitutions"), name)
    warnings.warn(
        f"autotune.graph.substitutions is now autotune.lab.substitutions, but got {name} from the former",
        DeprecationWarning,
        stacklevel=2,
    )
    return found
