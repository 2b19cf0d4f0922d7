"""Import paths of models, `package.module:function`: the function returns a PyTorch module and its example inputs."""

from __future__ import annotations

import importlib
import re
from importlib.util import find_spec
from typing import Any

from autotune.graph.errors import UnsupportedModelError

_PATH = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def is_import_path(text: str) -> bool:
    """Tells whether a model's name is the import path of a function."""
    return _PATH.fullmatch(text) is not None


def call_path(path: str) -> tuple[Any, Any]:
    """Calls the function that a path names.

    Args:
        path: `package.module:function` of a function without parameters.

    Returns:
        The module, a `torch.nn.Module`, and its example inputs, see `autotune.graph.frontends.aten.modules.export`.

    Raises:
        UnsupportedModelError: torch is missing, there is no such function, or it returns something else.
    """
    if find_spec("torch") is None:
        raise UnsupportedModelError(
            f"a PyTorch module needs the package `torch` (pip install torch), which is not installed, but got "
            f"model={path!r}"
        )
    package, name = path.split(":")
    try:
        function = getattr(importlib.import_module(package), name)
    except (ModuleNotFoundError, AttributeError) as error:
        raise UnsupportedModelError(
            f"`model` must be the import path of a function (is its folder in PYTHONPATH?), but got model={path!r}: "
            f"{error}"
        ) from error
    result = function()
    torch: Any = importlib.import_module("torch")
    if not isinstance(result, tuple) or len(result) != 2 or not isinstance(result[0], torch.nn.Module):
        kind = type(result[0] if isinstance(result, tuple) and len(result) == 2 else result).__name__
        raise UnsupportedModelError(
            f"the function of `model` must give (torch.nn.Module, inputs), but got model={path!r}, which gives {kind}"
        )
    return result[0], result[1]
