"""PyTorch modules as ONNX models: `package.module:function`, a function that gives a module and its example inputs."""

from __future__ import annotations

import importlib
import io
import re
from importlib.util import find_spec
from typing import Any

import onnx

from autotune.graph.errors import ModelError

OPSET = 17
_PATH = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def is_import_path(text: str) -> bool:
    """Whether a model's name says where a function is imported from."""
    return _PATH.fullmatch(text) is not None


def export(path: str) -> onnx.ModelProto:
    """What `torch.onnx.export` makes of the module that a function gives, in evaluation mode.

    Args:
        path: `package.module:function`. Called without arguments, the function gives (module, inputs), the inputs
            a tensor or a tuple of them, whose shapes the model will have.

    Raises:
        ModelError: torch is missing, there is no such function, or it gives something else.
    """
    if find_spec("torch") is None:
        raise ModelError(
            f"a PyTorch module needs the package `torch` (pip install torch), which is not installed, but got "
            f"model={path!r}"
        )
    module, inputs = _made(path)
    torch: Any = importlib.import_module("torch")
    if not isinstance(module, torch.nn.Module):
        raise ModelError(
            f"the function of `model` must give (torch.nn.Module, inputs), but got model={path!r}, which gives "
            f"{type(module).__name__}"
        )
    file = io.BytesIO()
    given = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
    with torch.no_grad():
        torch.onnx.export(module.eval(), given, file, opset_version=OPSET, dynamo=False)
    return onnx.load_model_from_string(file.getvalue())


def _made(path: str) -> tuple[Any, Any]:
    place, name = path.split(":")
    try:
        function = getattr(importlib.import_module(place), name)
    except (ModuleNotFoundError, AttributeError) as error:
        raise ModelError(
            f"`model` must be the import path of a function (is its folder in PYTHONPATH?), but got model={path!r}: "
            f"{error}"
        ) from error
    made = function()
    if not isinstance(made, tuple) or len(made) != 2:
        raise ModelError(
            f"the function of `model` must give (torch.nn.Module, inputs), but got model={path!r}, which gives "
            f"{type(made).__name__}"
        )
    return made[0], made[1]
